//! Commands.

use std::time::Duration;

use bytes::Bytes;
use jiff::fmt::strtime;

use super::{Io, MISUSE, NOT_FOUND, Shell, Stop};

/// Maximum duration of `sleep`.
const MAX_SLEEP: f64 = 1e9;

/// Folders and files in `/`.
const ROOT: &str = "bin\ndev\netc\nhome\nproc\nroot\ntmp\nusr\nvar\n";

const NAMES: [&str; 21] = [
    ":", "[", "ash", "bash", "cat", "date", "dd", "echo", "exit", "false", "gzip", "ls", "printf", "seq",
    "sh", "sleep", "tail", "test", "true", "uptime", "[[",
];

/// `true` if the command is simulated.
pub(super) fn is_known(command: &[String]) -> bool {
    command.first().is_some_and(|program| NAMES.contains(&name(program)))
}

/// Name of a program without its folder.
fn name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or_default()
}

/// Runs a command.
pub(super) async fn run(shell: &mut Shell, command: &[String], io: &Io) -> Result<i32, Stop> {
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let Some((program, arguments)) = command.split_first() else { return Ok(0) };
    match (name(program), arguments) {
        ("true" | ":", _) => Ok(0),
        ("false", _) => Ok(1),
        ("exit", arguments) => match arguments.first().map_or(Ok(shell.last), |code| code.parse::<i32>()) {
            Ok(code) => Err(Stop::Shell(code & 0xff)),
            Err(_) => {
                shell.fail(io, MISUSE, "sh: exit: not a number").await?;
                Err(Stop::Shell(MISUSE))
            }
        },
        ("sh" | "ash" | "bash", arguments) => {
            let ended = match arguments {
                ["-c", script, ..] => shell.script(script, io).await,
                [] | ["-i" | "-s"] => shell.interactive(io).await,
                [file, ..] => {
                    shell
                        .fail(io, NOT_FOUND, &format!("sh: can't open '{file}': No such file or directory"))
                        .await
                }
            };
            ended.or_else(Stop::contained)
        }
        ("echo", arguments) => {
            let count =
                arguments.iter().take_while(|flag| matches!(**flag, "-n" | "-e" | "-ne" | "-en")).count();
            let (flags, words) = arguments.split_at(count);
            let has = |flag| flags.iter().any(|flags| flags.contains(flag));
            let mut text = words.join(" ");
            if has('e') {
                text = unescape(&text);
            }
            if !has('n') {
                text.push('\n');
            }
            print(shell, io, text).await
        }
        ("printf", [format, arguments @ ..]) => print(shell, io, printf(format, arguments)).await,
        ("cat", [] | ["-" | "/dev/stdin"]) => shell.copy(io).await,
        ("cat", ["/dev/null"]) => Ok(0),
        ("cat", [file, ..]) => {
            shell.fail(io, 1, &format!("cat: can't open '{file}': No such file or directory")).await
        }
        ("date", arguments) => {
            let arguments: Vec<&&str> = arguments.iter().filter(|flag| **flag != "-u").collect();
            let format = match arguments.as_slice() {
                [] => "%a %b %e %H:%M:%S UTC %Y",
                [format] if format.starts_with('+') => &format[1..],
                [other, ..] => return shell.fail(io, 1, &format!("date: invalid date '{other}'")).await,
            };
            match strtime::format(format, shell.clock.now()) {
                Ok(date) => print(shell, io, format!("{date}\n")).await,
                Err(error) => shell.fail(io, 1, &format!("date: invalid format: {error}")).await,
            }
        }
        // Reads and writes no file.
        ("dd", _) => shell.fail(io, 0, "0+0 records in\n0+0 records out").await,
        ("gzip", []) => {
            let mut data = Vec::new();
            while let Some(more) = shell.read().await {
                if data.len() + more.len() > super::MAX_BUFFER {
                    return Err(Stop::Process(MISUSE));
                }
                data.extend_from_slice(&more);
            }
            print(shell, io, gzip(&data)).await
        }
        ("ls", [] | ["/"]) => print(shell, io, ROOT).await,
        ("ls", [.., file]) => shell.fail(io, 1, &format!("ls: {file}: No such file or directory")).await,
        ("seq", numbers) => {
            let numbers: Result<Vec<i64>, _> = numbers.iter().map(|number| number.parse()).collect();
            let range = match numbers.as_deref() {
                Ok([last]) => 1..=*last,
                Ok([first, last]) => *first..=*last,
                _ => return shell.fail(io, 1, "seq: invalid number").await,
            };
            for number in range {
                shell.step(io).await?;
                print(shell, io, format!("{number}\n")).await?;
            }
            Ok(0)
        }
        ("sleep", [seconds]) => {
            let seconds = seconds.trim_end_matches('s');
            if seconds == "infinity" {
                std::future::pending::<()>().await;
            }
            match seconds.parse::<f64>().map(|seconds| Duration::try_from_secs_f64(seconds.min(MAX_SLEEP))) {
                Ok(Ok(time)) => {
                    shell.clock.sleep(time).await;
                    Ok(0)
                }
                _ => shell.fail(io, 1, &format!("sleep: invalid number '{seconds}'")).await,
            }
        }
        ("tail", arguments) if arguments.contains(&"-f") => std::future::pending().await,
        ("[" | "[[", [condition @ .., "]" | "]]"]) | ("test", condition) => match test(condition) {
            Some(is_true) => Ok((!is_true).into()),
            None => shell.fail(io, MISUSE, &format!("{program}: unknown condition")).await,
        },
        ("uptime", []) => {
            let time = strtime::format("%H:%M:%S", shell.clock.now()).unwrap_or_default();
            let text = format!(" {time} up 0 min,  0 users,  load average: 0.00, 0.00, 0.00\n");
            print(shell, io, text).await
        }
        (known, _) if NAMES.contains(&known) => {
            shell.fail(io, MISUSE, &format!("{program}: these arguments are not simulated")).await
        }
        _ => {
            shell.fail(io, NOT_FOUND, &format!("exec: {program:?}: executable file not found in $PATH")).await
        }
    }
}

async fn print(shell: &Shell, io: &Io, text: impl Into<Bytes>) -> Result<i32, Stop> {
    shell.write(&io.out, text).await.map(|()| 0)
}

/// Condition of `test`. `None` if it is not simulated.
fn test(condition: &[&str]) -> Option<bool> {
    let number = |text: &str| text.parse::<i64>().ok();
    Some(match condition {
        [] => false,
        ["!", rest @ ..] => !test(rest)?,
        ["-z", text] => text.is_empty(),
        ["-n", text] | [text] => !text.is_empty(),
        [left, "=" | "==", right] => left == right,
        [left, "!=", right] => left != right,
        [left, operator, right] => {
            let order = number(left)?.cmp(&number(right)?);
            match *operator {
                "-eq" => order.is_eq(),
                "-ne" => order.is_ne(),
                "-lt" => order.is_lt(),
                "-le" => order.is_le(),
                "-gt" => order.is_gt(),
                "-ge" => order.is_ge(),
                _ => return None,
            }
        }
        _ => return None,
    })
}

/// Replaces escape sequences.
fn unescape(text: &str) -> String {
    let (mut result, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, false) => result.push(c),
            _ => match chars.next() {
                Some('n') => result.push('\n'),
                Some('r') => result.push('\r'),
                Some('t') => result.push('\t'),
                Some('\\') | None => result.push('\\'),
                Some(other) => result.extend(['\\', other]),
            },
        }
    }
    result
}

/// Formats arguments with `%s`, `%d` and `%%`.
fn printf(format: &str, arguments: &[&str]) -> String {
    let (mut result, mut arguments) = (String::new(), arguments.iter());
    let format = unescape(format);
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match (c, c == '%') {
            (_, false) => result.push(c),
            _ => match chars.next() {
                Some('s') => result.push_str(arguments.next().unwrap_or(&"")),
                Some('d') => result.push_str(arguments.next().unwrap_or(&"0")),
                Some('%') | None => result.push('%'),
                Some(other) => result.extend(['%', other]),
            },
        }
    }
    result
}

/// Data as a gzip file, without compression.
fn gzip(data: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    for block in data.chunks(usize::from(u16::MAX)) {
        let length = u16::try_from(block.len()).unwrap_or_default();
        file.push(0);
        file.extend_from_slice(&length.to_le_bytes());
        file.extend_from_slice(&(!length).to_le_bytes());
        file.extend_from_slice(block);
    }
    file.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
    file.extend_from_slice(&crc32(data).to_le_bytes());
    file.extend_from_slice(&u32::try_from(data.len()).unwrap_or_default().to_le_bytes());
    file
}

/// Checksum of a gzip file.
pub(super) fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}
