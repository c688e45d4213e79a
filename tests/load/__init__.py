"""The whole program under many clients, for a long time, and when something around it breaks."""
