//! `/debug/`: how much is logged, and what can be told of a running process.

use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::{Answer, Asked, Routes, handler};

/// The profiles that Go's programs have, and their users ask for.
const PROFILES: [&str; 9] =
    ["allocs", "block", "goroutine", "heap", "mutex", "profile", "symbol", "threadcreate", "trace"];

const FLAGS_PAGE: &str = "<html>
<head>
<title>/debug/flags/</title>
</head>
<body>
/debug/flags/<br>
<br>
flags:<br>
<table>
<tr>v<br>
</table>
<br>
full flags configurable<br>
</body>
</html>
";

/// Adds `/debug/flags/v`: a PUT of a number there changes how much is logged, by `set`, which gets the number.
///
/// Upstream counterpart: `routes.DebugFlags`, with its texts.
#[must_use]
pub fn debug_flags(routes: Routes, set: impl Fn(u32) + Send + Sync + 'static) -> Routes {
    let page = handler(|_| Answer::new(StatusCode::OK, "text/html; charset=utf-8", FLAGS_PAGE));
    let put = handler(move |asked| {
        if asked.method != http::Method::PUT {
            return line(StatusCode::NOT_ACCEPTABLE, "unsupported http method");
        }
        let text = String::from_utf8_lossy(asked.body);
        match parse_verbosity(&text) {
            Ok(verbosity) => {
                set(verbosity);
                line(StatusCode::OK, &format!("successfully set klog.logging.verbosity to {verbosity}"))
            }
            Err(why) => line(StatusCode::BAD_REQUEST, &why),
        }
    });
    routes.exact("/debug/flags", page.clone()).prefix("/debug/flags/", page).exact_with_body(
        "/debug/flags/v",
        http::Method::PUT,
        put,
    )
}

/// As Go parses it, and complains: first as a flag, then as klog.
fn parse_verbosity(text: &str) -> Result<u32, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("strconv.ParseUint: parsing {text:?}: invalid syntax"));
    }
    let too_much = "value out of range";
    let Ok(verbosity) = text.parse::<u32>() else {
        return Err(format!("strconv.ParseUint: parsing {text:?}: {too_much}"));
    };
    if i32::try_from(verbosity).is_err() {
        return Err(format!(
            "failed set klog.logging.verbosity {text}: strconv.ParseInt: parsing {text:?}: {too_much}"
        ));
    }
    Ok(verbosity)
}

/// Adds `/debug/pprof/`, for those who look there: it says that there are no profiles, and what to do instead.
///
/// DEVIATION: Go's runtime samples itself. Here it would take a signal handler that unwinds stacks, in unsafe code
/// that has been known to hang; `perf` sees as much from outside, in the binary as it is.
#[must_use]
pub fn profiling(routes: Routes) -> Routes {
    let redirect = handler(|_| {
        let body = "<a href=\"/debug/pprof/\">Found</a>.\n\n";
        Answer::new(StatusCode::FOUND, "text/html; charset=utf-8", body)
            .with(header::LOCATION, HeaderValue::from_static("/debug/pprof/"))
    });
    routes.exact("/debug/pprof", redirect).prefix("/debug/pprof/", handler(profile))
}

fn profile(asked: &Asked<'_>) -> Answer {
    let name = asked.path.strip_prefix("/debug/pprof/").unwrap_or_default();
    if name.is_empty() {
        let text = "This program has no profiles of itself. From outside: perf record -g -p PID, then perf report.\n\
                    Memory, threads, queues and requests are in /metrics.\n";
        return Answer::text(text).with(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    if PROFILES.contains(&name) {
        let message =
            format_args!("{name}: this program has no profiles of itself: use perf record -g -p PID");
        return Answer::error(StatusCode::NOT_IMPLEMENTED, message);
    }
    Answer::error(StatusCode::NOT_FOUND, "Unknown profile")
        .with(HeaderName::from_static("x-go-pprof"), HeaderValue::from_static("1"))
}

fn line(status: StatusCode, text: &str) -> Answer {
    Answer::new(status, "text/plain", format!("{text}\n"))
        .with(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
}
