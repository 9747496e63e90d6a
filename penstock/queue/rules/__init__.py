"""Rules beside the plain life of a job: paused queues, keys that are unique for a while, expiry, followers."""
