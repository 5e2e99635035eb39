//! Compiles the .proto files with protox: no protoc is needed.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

const FILES: [&str; 5] = [
    "headwater/cloud/v1/cloud.proto",
    "headwater/local/v1/local.proto",
    "headwater/log/v1/record.proto",
    "headwater/operator/v1/operator.proto",
    "headwater/replication/v1/replication.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=headwater");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let descriptors = protox::compile(FILES, ["."])?;
    // For gRPC reflection.
    std::fs::write(out.join("headwater.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::codec::LeanCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
