//! The cloud end: folds the log and serves it to edge sessions.
