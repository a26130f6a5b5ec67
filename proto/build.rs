//! Compiles the contract without protoc.

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = "proto/amalgam/solver/v1/solver.proto";
    println!("cargo:rerun-if-changed={file}");
    let descriptors = protox::compile([file], ["proto"])?;
    let path = std::path::Path::new(&std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(path, descriptors.encode_to_vec())?;
    let builder = tonic_prost_build::configure().bytes(".").codec_path("crate::codec::Codec");
    builder.compile_fds(descriptors)?;
    Ok(())
}
