//! The compiled contract that the Python package carries is the one of `solver.proto`.

use prost::Message as _;

/// `UPDATE_DESCRIPTORS=1 cargo test -p amalgam-proto --test python` writes it anew.
#[test]
fn the_python_package_has_the_contract() {
    let mut descriptors =
        prost_types::FileDescriptorSet::decode(amalgam_proto::DESCRIPTORS).expect("compiled by the build");
    // Comments and places are for people.
    descriptors.file.iter_mut().for_each(|file| file.source_code_info = None);
    let bytes = descriptors.encode_to_vec();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/amalgam_solver/solver.descriptors");
    if std::env::var_os("UPDATE_DESCRIPTORS").is_some() {
        std::fs::write(path, &bytes).expect("the package is there");
    }
    let carried = std::fs::read(path).expect("the package is there");
    assert!(carried == bytes, "{path} is another contract: run this test with UPDATE_DESCRIPTORS=1");
}
