//! A run's events as a task and as updates.
