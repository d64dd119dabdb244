"""The receiver of webhooks, which others send."""
