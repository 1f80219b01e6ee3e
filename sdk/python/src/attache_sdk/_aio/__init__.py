"""The asynchronous clients. `_sync` is generated from them."""
