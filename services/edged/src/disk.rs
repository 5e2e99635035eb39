//! Files below the pod worker's directory: where they lie, and how they are written durably.

pub(crate) mod claim_record;
pub(crate) mod durable_file;
pub(crate) mod file_error;
pub(crate) mod log_files;
pub(crate) mod mounts;
pub(crate) mod paths;
pub(crate) mod pod_store;
pub(crate) mod runtime_note;
