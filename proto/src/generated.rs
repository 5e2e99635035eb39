//! What the build script made of the .proto files.

/// All files' descriptors, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/headwater.bin"));

macro_rules! package {
    ($(#[$doc:meta])* $module:ident, $package:literal) => {
        $(#[$doc])*
        #[allow(
            missing_docs,
            unused_qualifications,
            clippy::all,
            clippy::allow_attributes_without_reason,
            rustdoc::all,
            reason = "generated code"
        )]
        pub mod $module {
            tonic::include_proto!($package);
        }
    };
}

package! {
    /// The edge's local API.
    local, "headwater.local.v1"
}
package! {
    /// Headers of log records.
    log, "headwater.log.v1"
}
package! {
    /// What the asking commands ask.
    operator, "headwater.operator.v1"
}
package! {
    /// What an edge and a hub say to each other.
    replication, "headwater.replication.v1"
}
