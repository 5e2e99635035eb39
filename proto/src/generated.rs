//! The modules that the build script generates from the .proto files.

/// The descriptors of all files, for gRPC reflection.
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
    /// The lane between a hub and the active controller.
    cloud, "headwater.cloud.v1"
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
    /// The requests of the operator's commands.
    operator, "headwater.operator.v1"
}
package! {
    /// The replication protocol between an edge and a hub.
    replication, "headwater.replication.v1"
}
