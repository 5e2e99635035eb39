//! Requests of nodes to the cloud: authorization, bounds, and the handlers that respond.
//!
//! ```text
//!  session ───────► RequestDispatcher ───► FoldRequestHandler ───► RequestHandler
//!  authorizes by    bounds in flight,      the objects of the      of the composition: in `up`
//!  interest         deadline               hub's own fold          the controller's `Cloud`
//! ```
//!
//! A node may ask for an object that is in its private stream or that one of its pods names; the
//! pure session checks this before it hands a request on. Nothing is queued and nothing is retried:
//! a request beyond the bounds fails at once, and the edge asks again.
//!
//! | module | what it owns |
//! |---|---|
//! | `request` | a request, its verbs, its errors |
//! | `handler` | the seam to the composition |
//! | `fold_handler` | responses from the hub's own fold |
//! | `dispatcher` | the bounds in flight and the deadline |

mod dispatcher;
mod fold_handler;
mod handler;
mod request;

pub(crate) use dispatcher::RequestDispatcher;
pub(crate) use fold_handler::FoldRequestHandler;
pub use handler::{NoRequestHandler, RequestHandler};
pub use request::{NodeRequest, NodeRequestError, TooManyOf, Verb};
