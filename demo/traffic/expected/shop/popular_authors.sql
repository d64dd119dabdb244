SELECT author FROM follows_now GROUP BY author HAVING count(*) > getvariable('most_followers')
