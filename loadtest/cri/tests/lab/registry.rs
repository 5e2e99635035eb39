//! The registry of a lab.

use headwater_cri_lab::{Containerd, Image, Login};

use crate::start;

/// A port of loopback in the lab's own network.
const PORT: u16 = 5000;

fn login(password: &str) -> Login {
    Login { user: "edge".to_owned(), password: password.to_owned() }
}

/// The error of a pull by containerd's client; it runs where the registry is.
fn pull(containerd: &Containerd, name: &str, login: &Login) -> Option<String> {
    let mut ctr = containerd.machine().command("ctr");
    ctr.arg("--address").arg(containerd.socket()).args([
        "images",
        "pull",
        "--plain-http",
        "--user",
    ]);
    let output = ctr.arg(format!("{}:{}", login.user, login.password)).arg(name).output();
    let output = output.expect("it starts");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(words)
}

#[test]
fn an_image_is_sent_and_pulled_with_the_right_password() {
    let Some(containerd) = start() else { return };
    let mut registry = containerd.registry(PORT, Some(login("s3cret"))).expect("a registry");
    let image = Image::new("localhost/web:1").file("etc/version", 0o644, "1");
    let name = containerd.push(&registry, &image, "team/web:1").expect("it is sent");
    assert_eq!(name, "127.0.0.1:5000/team/web:1");
    let refused = pull(&containerd, &name, &login("wrong")).expect("a refusal");
    assert!(refused.contains("401"), "{refused}");
    registry.server().kill().expect("it can be killed");
    let away = pull(&containerd, &name, &login("s3cret")).expect("nothing listens");
    assert!(away.contains("connection refused"), "{away}");
    registry.server().start().expect("it starts again");
    assert_eq!(pull(&containerd, &name, &login("s3cret")), None);
}

#[test]
fn a_second_registry_at_a_port_says_so() {
    let Some(containerd) = start() else { return };
    let _registry = containerd.registry(PORT, None).expect("a registry");
    let error = containerd.registry(PORT, None).expect_err("the port is taken").to_string();
    assert!(error.contains("the registry at 127.0.0.1:5000"), "{error}");
    assert!(error.contains("address already in use"), "{error}");
}
