//! The trust in the peer of a connection: it ends when the CAs change and none of them verifies the
//! peer's certificate.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;

/// How often a process reads its certificate files when no connection makes it do so. A session
/// outlives the trust in its peer by no more than this and its own next look, and three small files
/// in ten seconds cost nothing.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// Counts the changes of the CAs in an identity's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrustVersion(pub(crate) u64);

/// Verifies peers against the CAs in an identity's files.
pub(crate) trait PeerVerifier: Send + Sync {
    /// The version of the CAs that were loaded last.
    fn version(&self) -> TrustVersion;

    /// Verifies a chain against the present CAs; returns their version.
    fn verify(&self, chain: &PeerChain) -> Result<TrustVersion, Distrust>;

    /// Reads the files again.
    fn refresh(&self);
}

/// The certificates that a peer showed.
#[derive(Debug)]
pub(crate) struct PeerChain {
    pub(crate) leaf: CertificateDer<'static>,
    pub(crate) intermediates: Vec<CertificateDer<'static>>,
}

/// The trust in the peer of one connection. Clones check independently.
#[derive(Clone)]
pub struct PeerTrust {
    verifier: Arc<dyn PeerVerifier>,
    chain: Arc<PeerChain>,
    /// The CAs against which the chain was verified last.
    verified: TrustVersion,
}

/// The CAs changed, and the peer's certificate does not verify any more.
#[derive(Debug, thiserror::Error)]
#[error(
    "the peer's certificate does not verify against the CAs that are in {ca} now: issue it with one \
     of them, or add its CA to the file"
)]
pub struct Distrust {
    /// The file of the CAs.
    pub ca: PathBuf,
    /// The reason.
    pub source: rustls::Error,
}

impl PeerChain {
    /// The chain of a connection; `None`: the peer showed no certificate.
    pub(crate) fn of(shown: Option<&[CertificateDer<'static>]>) -> Option<Self> {
        let (leaf, intermediates) = shown?.split_first()?;
        Some(Self { leaf: leaf.clone(), intermediates: intermediates.to_vec() })
    }
}

impl PeerTrust {
    /// The trust in a peer whose `chain` a handshake verified against the CAs of that version.
    pub(crate) fn new(
        verifier: Arc<dyn PeerVerifier>,
        chain: PeerChain,
        verified: TrustVersion,
    ) -> Self {
        Self { verifier, chain: Arc::new(chain), verified }
    }

    /// Checks that the peer's certificate verifies against the CAs that were loaded last. While the
    /// CAs do not change, the check is one comparison.
    ///
    /// # Errors
    /// When it does not verify any more.
    pub fn check(&mut self) -> Result<(), Distrust> {
        if self.verified != self.verifier.version() {
            self.verified = self.verifier.verify(&self.chain)?;
        }
        Ok(())
    }

    /// Waits until the peer's certificate does not verify any more. Reads the files every
    /// [`REFRESH_INTERVAL`].
    pub async fn lost(&mut self) -> Distrust {
        loop {
            if let Err(distrust) = self.check() {
                return distrust;
            }
            tokio::time::sleep(REFRESH_INTERVAL).await;
            self.verifier.refresh();
        }
    }
}

impl fmt::Debug for PeerTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTrust").field("verified", &self.verified).finish_non_exhaustive()
    }
}
