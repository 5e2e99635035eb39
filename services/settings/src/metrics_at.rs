//! Where metrics and health are served.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What turns metrics and health off.
const METRICS_OFF: &str = "off";

/// Where metrics and health are served, if anywhere. Port 0 is any free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MetricsAt(pub Option<SocketAddr>);

/// It is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an address like 127.0.0.1:9464 nor `{METRICS_OFF}`")]
pub struct NoAddress(String);

impl Default for MetricsAt {
    /// A free port of loopback, so that several processes of a machine do not collide. The data
    /// directory holds the address.
    fn default() -> Self {
        Self(Some((Ipv4Addr::LOCALHOST, 0).into()))
    }
}

impl FromStr for MetricsAt {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        if text == METRICS_OFF {
            return Ok(Self(None));
        }
        let address = text.parse().map_err(|_| NoAddress(text.to_owned()))?;
        Ok(Self(Some(address)))
    }
}

impl TryFrom<String> for MetricsAt {
    type Error = NoAddress;

    fn try_from(text: String) -> Result<Self, NoAddress> {
        text.parse()
    }
}

impl fmt::Display for MetricsAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => write!(f, "{address}"),
            None => f.write_str(METRICS_OFF),
        }
    }
}

impl From<MetricsAt> for String {
    fn from(at: MetricsAt) -> Self {
        at.to_string()
    }
}
