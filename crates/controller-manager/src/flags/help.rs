//! `--help`.

use std::fmt::Write as _;

use super::{FLAGS, Flag, FlagKind, table::topics};
use crate::version::{BINARY, KUBERNETES_VERSION};

/// Maximum length of a line of text, without its indentation.
const WIDTH: usize = 100;

/// Help text: the flags of this binary by topic, then the names of all other flags.
///
/// `details` are pairs of a flag's name and text that follows its description.
pub(crate) fn help(details: &[(&str, String)]) -> String {
    let mut text = format!(
        "{BINARY} runs the Deployment, ReplicaSet and ReplicationController\n\
         controllers of Kubernetes {KUBERNETES_VERSION}. It accepts all flags of upstream's {BINARY}.\n\n\
         Usage:\n  {BINARY} [flags]\n",
    );
    // Writing to a `String` does not fail, here and below.
    for (topic, flags) in topics() {
        let _ = writeln!(text, "\n{topic}:\n");
        for flag in flags.filter_map(|(name, _)| FLAGS.iter().find(|flag| flag.name == name)) {
            let detail = details.iter().find(|(name, _)| *name == flag.name);
            entry(&mut text, flag, detail.map_or("", |(_, detail)| detail));
        }
    }
    let _ = writeln!(
        text,
        "\nFlags of controllers that are not part of this binary (validated, otherwise without effect):\n"
    );
    let others = FLAGS.iter().filter(|flag| flag.help.is_none() && flag.deprecated.is_none());
    let others: Vec<_> = others.map(|flag| format!("--{}", flag.name)).collect();
    for line in wrap(&others.join(" ")) {
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn entry(text: &mut String, flag: &Flag, detail: &str) {
    let short = flag.short.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
    let kind = match flag.kind {
        FlagKind::Bool => String::new(),
        FlagKind::Version => " version[=true]".to_owned(),
        kind => format!(" {}", kind.name()),
    };
    let default = match (flag.kind, flag.default) {
        (_, "" | "0s" | "0") | (FlagKind::Bool | FlagKind::Version, "false") => String::new(),
        (FlagKind::List, default) => format!(" (default [{default}])"),
        (FlagKind::Text, default) => format!(" (default {default:?})"),
        (_, default) => format!(" (default {default})"),
    };
    let _ = writeln!(text, "  {short}--{}{kind}", flag.name);
    let description = format!("{}{default}{detail}", flag.help.unwrap_or_default());
    for line in description.lines().flat_map(wrap) {
        let _ = writeln!(text, "          {line}");
    }
}

/// Splits a paragraph into lines of at most [`WIDTH`] characters. Longer words are not split.
fn wrap(paragraph: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in paragraph.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_other_flags_by_name_except_deprecated_ones() {
        let help = help(&[]);
        let (_, others) = help.split_once("without effect):\n").unwrap();
        let others: Vec<_> = others.split_whitespace().collect();
        let expected = FLAGS.iter().filter(|flag| flag.help.is_none() && flag.deprecated.is_none());
        assert_eq!(others, expected.map(|flag| format!("--{}", flag.name)).collect::<Vec<_>>());
    }

    #[test]
    fn describes_flags_with_type_default_and_details() {
        let help = help(&[("controllers", "\nAll controllers: a, b".to_owned())]);
        for line in [
            "Leader election:",
            "  -v, --v Level",
            "      --version version[=true]",
            "      --kube-api-qps float32",
            "          Namespace of the Lease. (default \"kube-system\")",
            "          All controllers: a, b",
        ] {
            assert!(help.lines().any(|shown| shown == line), "{line} is not in\n{help}");
        }
    }
}
