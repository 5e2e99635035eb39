//! Compiles the .proto files with protox: no protoc is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=../../proto/cri");
    let descriptors =
        protox::compile(["cri/runtime.proto", "cri/containerd.proto"], ["../../proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
