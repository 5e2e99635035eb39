//! Requests of nodes to the cloud: authorization, bounds, and the handlers that respond.
//!
//! ```text
//!  session ───────► RequestDispatcher ───► FoldRequestHandler ───► RequestHandler
//!  authorizes by    bounds in flight,      the objects of the      of the composition: in `up`
//!  interest         deadline               hub's own fold          the controller's `Cloud`
//! ```
//!
//! A node may ask for an object that is in its private stream or that one of its pods names, for a token
//! of one of its pods, and for a certificate of its own name. The pure session checks the key of a
//! request before it hands the request on, `fold_handler` the body. Nothing is queued and nothing is retried:
//! a request beyond the bounds fails at once, and the edge asks again.
//!
//! | module | what it owns |
//! |---|---|
//! | `handler` | the seam to the composition |
//! | `fold_handler` | the check of bodies, and responses from the hub's own fold |
//! | `dispatcher` | the bounds in flight and the deadline |
//! | `too_many` | whose requests are beyond a bound |

mod dispatcher;
mod fold_handler;
mod handler;
mod too_many;

pub(crate) use dispatcher::RequestDispatcher;
pub(crate) use fold_handler::FoldRequestHandler;
pub use handler::{NoRequestHandler, RequestHandler};
pub(crate) use too_many::TooManyOf;
