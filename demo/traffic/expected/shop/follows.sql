FROM follows_now
