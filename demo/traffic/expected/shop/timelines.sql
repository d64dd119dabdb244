SELECT follower, post_id, author, posted_at, version, product, text
FROM posts_now JOIN follows_now AS f USING (author)
WHERE (SELECT count(*) FROM follows_now AS other WHERE other.author = f.author) <= getvariable('most_followers')
