"""Every metric and every log event, declared once."""
