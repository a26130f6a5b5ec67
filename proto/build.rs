//! Compiles the contracts without protoc.

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["proto/amalgam/solver/v1/solver.proto", "proto/amalgam/registry/v1/registry.proto"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["proto"])?;
    let path = std::path::Path::new(&std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(path, descriptors.encode_to_vec())?;
    let builder = tonic_prost_build::configure().bytes(".").codec_path("crate::codec::Codec");
    builder.compile_fds(descriptors)?;
    Ok(())
}
