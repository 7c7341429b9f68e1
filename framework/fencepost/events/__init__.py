"""Events: the envelope, the codec, and the kinds of events."""
