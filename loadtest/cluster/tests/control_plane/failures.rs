//! What cannot start says why.

use headwater_cluster::{ControlPlane, ControlPlaneSettings, Part};

use crate::kubectl::only_api;

#[test]
fn a_flag_that_a_part_does_not_know_is_quoted() {
    for part in [Part::Etcd, Part::ApiServer] {
        let flags = [(part, vec!["--no-such-flag".to_owned()])].into();
        let settings = ControlPlaneSettings { flags, ..only_api() };
        let error = ControlPlane::start(settings).expect_err("no such flag").to_string();
        assert!(error.starts_with(&format!("{} failed", part.name())), "{error}");
        assert!(error.contains("no-such-flag"), "{error}");
    }
}
