//! Whether this processor has what the build takes for granted.

/// What RocksDB's checksums are made with on x86-64, as `.cargo/config.toml` has it built: without
/// these instructions the first write would end the process.
///
/// Gives what is missing.
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
