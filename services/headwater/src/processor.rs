//! Checks that the processor has the instructions that the build uses.

/// Returns the missing instructions on x86-64. `.cargo/config.toml` builds RocksDB's checksums with
/// them; without them the first write would end the process.
pub(crate) fn lacks() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        let found = [
            ("SSE4.2", std::arch::is_x86_feature_detected!("sse4.2")),
            ("PCLMULQDQ", std::arch::is_x86_feature_detected!("pclmulqdq")),
        ];
        found.into_iter().find(|(_, is_there)| !is_there).map(|(name, _)| name)
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}
