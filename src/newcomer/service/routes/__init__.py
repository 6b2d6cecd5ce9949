"""The operations of a service, by topic."""
