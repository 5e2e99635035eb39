//! The frames of a call.

use headwater_proto::replication as wire;
use tonic::codegen::Bytes;
use wire::tunnel_frame::Frame;

/// A frame with bytes.
pub(crate) fn bytes(bytes: Bytes) -> wire::TunnelFrame {
    wire::TunnelFrame { frame: Some(Frame::Bytes(bytes)) }
}

/// A frame that gives the other end room for as many bytes.
pub(crate) fn taken(count: usize) -> wire::TunnelFrame {
    // A window has fewer.
    wire::TunnelFrame { frame: Some(Frame::Taken(u32::try_from(count).unwrap_or(u32::MAX))) }
}

/// The end of this end's bytes.
pub(crate) fn end() -> wire::TunnelFrame {
    wire::TunnelFrame { frame: Some(Frame::End(wire::TunnelEnd {})) }
}

/// The first frame of the edge.
pub fn open(id: [u8; 16], node: &str, refusal: Option<wire::TunnelRefusal>) -> wire::TunnelFrame {
    let open = wire::TunnelOpen { id: id.to_vec().into(), node: node.to_owned(), refusal };
    wire::TunnelFrame { frame: Some(Frame::Open(open)) }
}

/// What the first frame of an edge opens; `None`: it is another frame.
pub fn opened(frame: wire::TunnelFrame) -> Option<wire::TunnelOpen> {
    match frame.frame {
        Some(Frame::Open(open)) => Some(open),
        _ => None,
    }
}
