//! `--help`.

use std::fmt::Write as _;

use super::{FLAGS, Flag, FlagKind};
use crate::{feature_gates, selection, version::BINARY};

/// All flags for people, by section, in upstream's order.
pub(crate) fn help() -> String {
    let mut text = format!(
        "{BINARY} rolls out Deployments and keeps up the pods of ReplicaSets and\n\
         ReplicationControllers, as Kubernetes {} does. Its flags are those of upstream's\n\
         kube-controller-manager; those of controllers that are not built in are accepted.\n\n\
         Usage:\n  {BINARY} [flags]\n",
        crate::KUBERNETES_VERSION
    );
    let mut section = "";
    for flag in FLAGS.iter().filter(|flag| flag.deprecated.is_none()) {
        // Writing to a string does not fail.
        if flag.section != section {
            section = flag.section;
            let _ = writeln!(text, "\n{} flags:\n", capitalized(section));
        }
        let _ = write!(text, "{}", entry(flag));
    }
    text
}

fn entry(flag: &Flag) -> String {
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
    let help = match flag.help {
        Some(help) => help.to_owned(),
        None if flag.section.ends_with("-controller") => {
            format!("Used by {}, which is not built in.", flag.section)
        }
        None => "Used by controllers that are not built in.".to_owned(),
    };
    let options = match flag.name {
        "controllers" => selection::listing(),
        "feature-gates" => feature_gates::listing(),
        _ => String::new(),
    };
    let mut text = format!("  {short}--{}{kind}\n", flag.name);
    for paragraph in format!("{help}{options}{default}").lines() {
        for line in wrapped(paragraph) {
            let _ = writeln!(text, "          {line}");
        }
    }
    text
}

/// Lines that fit a terminal, if words do.
fn wrapped(paragraph: &str) -> Vec<String> {
    const WIDTH: usize = 100;
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

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}
