//! The address of a hub.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// A DNS name or an IP address, and a port. Each connection resolves the name anew. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HubAddress {
    host: Arc<str>,
    port: u16,
}

/// The text is no address of a hub.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no HOST:PORT: hub.example.org:7300, 192.0.2.1:7300 or [2001:db8::1]:7300")]
pub struct HubAddressError {
    text: String,
}

impl HubAddress {
    /// The DNS name or the IP address, without brackets, as in a certificate.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the address can only mean this machine. Resolves no name.
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback(),
            Err(_) => &*self.host == "localhost",
        }
    }
}

impl From<SocketAddr> for HubAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string().into(), port: address.port() }
    }
}

impl FromStr for HubAddress {
    type Err = HubAddressError;

    fn from_str(text: &str) -> Result<Self, HubAddressError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let error = || HubAddressError { text: text.to_owned() };
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if host.is_empty() || !host.chars().all(is_name) {
            return Err(error());
        }
        let port = port.parse().map_err(|_| error())?;
        Ok(Self { host: host.to_ascii_lowercase().into(), port })
    }
}

impl fmt::Display for HubAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only an IPv6 address has a colon.
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_displayed_as_it_is_parsed() {
        for text in ["hub.example.org:7300", "192.0.2.1:7300", "[2001:db8::1]:7300", "hub:1"] {
            let address: HubAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        assert_eq!(
            "[2001:db8::1]:7".parse().map(|a: HubAddress| a.host().to_owned()),
            Ok("2001:db8::1".to_owned())
        );
        for text in
            ["", "hub", ":7300", "hub:", "hub:70000", "a b:1", "2001:db8::1:x", "http://a:1"]
        {
            text.parse::<HubAddress>().expect_err(text);
        }
    }

    #[test]
    fn loopback_is_recognised_without_a_lookup() {
        for (text, loopback) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("localhost:1", true),
            ("192.0.2.1:1", false),
            ("hub.example.org:1", false),
            ("localhost.example.org:1", false),
        ] {
            let address: HubAddress = text.parse().expect(text);
            assert_eq!(address.is_loopback(), loopback, "{text}");
        }
    }
}
