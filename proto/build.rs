//! Compiles the contracts without protoc.

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = std::env::var("OUT_DIR")?;
    for name in ["solver", "registry", "coordinator"] {
        let file = format!("proto/amalgam/{name}/v1/{name}.proto");
        println!("cargo:rerun-if-changed={file}");
        let descriptors = protox::compile([&file], ["proto"])?;
        let path = std::path::Path::new(&out).join(format!("{name}.bin"));
        std::fs::write(path, descriptors.encode_to_vec())?;
        let builder = tonic_prost_build::configure().bytes(".").codec_path("crate::codec::Codec");
        builder.compile_fds(descriptors)?;
    }
    Ok(())
}
