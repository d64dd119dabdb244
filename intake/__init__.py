"""What others bring: the receiver of webhooks."""
