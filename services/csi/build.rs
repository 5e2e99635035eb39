//! Compiles the .proto files with protox: no protoc is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=../../proto/csi");
    let descriptors =
        protox::compile(["csi/csi.proto", "csi/registration.proto"], ["../../proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
