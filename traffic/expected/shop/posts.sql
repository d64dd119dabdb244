FROM posts_now
