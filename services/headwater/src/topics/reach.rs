//! Whether the addresses of the brokers accept connections. Kafka's client reports an address that does
//! not answer only as a request that timed out.

use std::io;
use std::time::Duration;

use headwater_cli::exit::Failure;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time limit of a connection: a broker on the same continent needs a tenth of it.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// The port of an address without one, as in Kafka's client.
const PORT_DEFAULT: u16 = 9092;

/// Succeeds if one of the addresses accepts a connection; names each other one on stderr.
///
/// # Errors
/// When none does: it names each with its cause.
pub(super) async fn check(brokers: &str) -> Result<(), Failure> {
    let (mut silent, mut answers) = (Vec::new(), false);
    for address in brokers.split(',').map(str::trim).filter(|address| !address.is_empty()) {
        match connect(&socket_address(address)).await {
            Ok(()) => answers = true,
            Err(error) => silent.push(format!("{address} does not answer: {error}")),
        }
    }
    if answers || silent.is_empty() {
        silent.iter().for_each(|text| eprintln!("warning: the broker at {text}"));
        return Ok(());
    }
    let silent = silent.join("; ");
    Err(Failure::message(format!(
        "the broker at {silent}; check the address (--kafka), and whether the broker runs"
    )))
}

/// The address without a protocol, and with a port.
fn socket_address(address: &str) -> String {
    let address = address.split_once("://").map_or(address, |(_, address)| address);
    let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { address.to_owned() } else { format!("{address}:{PORT_DEFAULT}") }
}

async fn connect(address: &str) -> io::Result<()> {
    match timeout(CONNECT_MAX, TcpStream::connect(address)).await {
        Ok(connected) => connected.map(drop),
        Err(_) => {
            let text = format!("no connection within {}s", CONNECT_MAX.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn an_address_is_read_as_kafkas_client_reads_it() {
        for (address, expected) in [
            ("broker", "broker:9092"),
            ("broker:9093", "broker:9093"),
            ("SSL://broker:9093", "broker:9093"),
            ("[::1]:9093", "[::1]:9093"),
        ] {
            assert_eq!(socket_address(address), expected);
        }
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let open = listener.local_addr().expect("bound").to_string();
        // Port 1 of this machine has no listener.
        let closed = "127.0.0.1:1";
        assert!(check(&format!("{closed},{open}")).await.is_ok(), "one of them suffices");
        let Err(Failure::Failed(error)) = check(closed).await else { panic!("nothing listens") };
        let expected = format!("the broker at {closed} does not answer: Connection refused");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}
