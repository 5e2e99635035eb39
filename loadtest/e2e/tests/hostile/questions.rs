//! Questions that make no sense: an answer in words, an exit status, and nothing else happens.

use crate::bench::Bench;

#[test]
fn any_question_is_answered_or_refused_in_words() {
    let bench = Bench::new();
    let long = "x".repeat(100_000);
    let texts = [
        "",
        " ",
        "-1",
        "0",
        "1.5",
        "18446744073709551615",
        "18446744073709551616",
        "1e9",
        "now",
        "9999-12-31T23:59:59Z",
        "2026-13-45T99:99:99Z",
        "-009999-01-01T00:00:00Z",
        "../..",
        "\u{7}",
        "a=b,,",
        "!a",
        "in (",
        "%00",
        "💥",
        "node/",
        "node/node-1/x",
        long.as_str(),
    ];
    for (row, text) in texts.into_iter().enumerate() {
        let all = [
            vec!["get", "pods", "--node", "node-1", "--at", text],
            vec!["get", "pods", "--at", text],
            vec!["get", text],
            vec!["get", "pod", text],
            vec!["get", "pods", "-n", text],
            vec!["get", "pods", "-l", text],
            vec!["get", "pods", "--node", text],
            vec!["history", text],
            vec!["history", "node/node-1", "--from", text],
            vec!["history", "node/node-1", "--to", text],
            vec!["diff", "node/node-1", "--from", text, "--to", text],
            vec!["describe", "pod", text],
            vec!["logs", text],
            vec!["logs", "good", "-c", text],
            vec!["verify", text],
        ];
        // Each text meets a third of the questions, and each question a third of the texts.
        for args in all.iter().enumerate().filter(|(n, _)| (n + row) % 3 == 0).map(|(_, a)| a) {
            let output = bench.running.ask(args);
            let error = String::from_utf8_lossy(&output.stderr);
            let shown: Vec<String> =
                args.iter().map(|arg| arg.chars().take(40).collect()).collect();
            let code = output.status.code();
            assert!(matches!(code, Some(0..=3)), "{shown:?}: {code:?} {error}");
            assert!(!error.contains("panicked"), "{shown:?}: {error}");
            assert!(code == Some(0) || !error.is_empty(), "{shown:?} fails without a word");
        }
    }
    bench.goes_on("questions that make no sense");
}
