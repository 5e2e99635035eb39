//! Compiles the .proto file with protox: no protoc is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=../../proto/kubelet");
    let descriptors = protox::compile(["kubelet/device_plugin.proto"], ["../../proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
