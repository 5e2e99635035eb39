//! Kubernetes objects as Headwater sees them: identity, references, status rules.
