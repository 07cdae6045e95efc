//! `/debug/flags/v` and `/debug/pprof/`.

use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::{Request, Response, Routes, handler};

/// Profiles of Go programs.
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

/// Adds `/debug/flags/v`, where a PUT of a number sets the log verbosity with `set`.
///
/// Upstream counterpart: `routes.DebugFlags`. The responses equal upstream's.
#[must_use]
pub fn debug_flags(routes: Routes, set: impl Fn(u32) + Send + Sync + 'static) -> Routes {
    let page = handler(|_| Response::new(StatusCode::OK, "text/html; charset=utf-8", FLAGS_PAGE));
    let put = handler(move |request| {
        if request.method != http::Method::PUT {
            return line(StatusCode::NOT_ACCEPTABLE, "unsupported http method");
        }
        let text = String::from_utf8_lossy(request.body);
        match parse_verbosity(&text) {
            Ok(verbosity) => {
                set(verbosity);
                line(StatusCode::OK, &format!("successfully set klog.logging.verbosity to {verbosity}"))
            }
            Err(message) => line(StatusCode::BAD_REQUEST, &message),
        }
    });
    routes.exact("/debug/flags", page.clone()).prefix("/debug/flags/", page).exact_with_body(
        "/debug/flags/v",
        http::Method::PUT,
        put,
    )
}

/// Parses a verbosity with Go's errors: those of the flag parser, then those of klog.
fn parse_verbosity(text: &str) -> Result<u32, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("strconv.ParseUint: parsing {text:?}: invalid syntax"));
    }
    let out_of_range = "value out of range";
    let Ok(verbosity) = text.parse::<u32>() else {
        return Err(format!("strconv.ParseUint: parsing {text:?}: {out_of_range}"));
    };
    if i32::try_from(verbosity).is_err() {
        return Err(format!(
            "failed set klog.logging.verbosity {text}: strconv.ParseInt: parsing {text:?}: {out_of_range}"
        ));
    }
    Ok(verbosity)
}

/// Adds `/debug/pprof/`, which responds with status 501 and instructions for `perf`.
///
/// DEVIATION: Go's runtime has a sampling profiler. Here it would require a signal handler that unwinds stacks, in unsafe
/// code. `perf` profiles the unmodified binary.
#[must_use]
pub fn profiling(routes: Routes) -> Routes {
    let redirect = handler(|_| {
        let body = "<a href=\"/debug/pprof/\">Found</a>.\n\n";
        Response::new(StatusCode::FOUND, "text/html; charset=utf-8", body)
            .with(header::LOCATION, HeaderValue::from_static("/debug/pprof/"))
    });
    routes.exact("/debug/pprof", redirect).prefix("/debug/pprof/", handler(profile))
}

fn profile(request: &Request<'_>) -> Response {
    let name = request.path.strip_prefix("/debug/pprof/").unwrap_or_default();
    if name.is_empty() {
        let text = "This program has no profiler. Use perf record -g -p PID and perf report.\n\
                    /metrics contains memory, file descriptors, work queues and requests.\n";
        return Response::text(text)
            .with(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    if PROFILES.contains(&name) {
        let message = format_args!("profile {name} is not supported: use perf record -g -p PID");
        return Response::error(StatusCode::NOT_IMPLEMENTED, message);
    }
    Response::error(StatusCode::NOT_FOUND, "Unknown profile")
        .with(HeaderName::from_static("x-go-pprof"), HeaderValue::from_static("1"))
}

fn line(status: StatusCode, text: &str) -> Response {
    Response::new(status, "text/plain", format!("{text}\n"))
        .with(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
}
