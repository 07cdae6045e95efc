//! Simulated servers in containers, for images that test suites use. The `proxy` subresource reaches them.
//!
//! | image | response |
//! |---|---|
//! | `agnhost serve-hostname` | name of the pod |
//! | `agnhost netexec` | name of the pod for `/hostname`, the parameter `msg` for `/echo`, `ok` for `/healthz` |
//! | `agnhost porter` | value of the container's environment variable `SERVE_PORT_<port>` |
//! | `httpd` | a line with the name of the pod |
//! | `nginx` | for `/`, nginx' heading and the name of the pod |
//! | `nautilus` | `{"image": "nautilus.jpg"}` for `/data.json` |

use kcm_apiserver::json::str_at;
use serde_json::Value;

use crate::{PodRequest, PodResponse};

/// Simulated server of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    ServeHostname,
    Netexec,
    Porter,
    Httpd,
    Nginx,
    Nautilus,
}

/// Returns the response of the pod's simulated server. `None` if no container has one at this port.
///
/// A value for [`HttpServer::pod_server`](crate::HttpServer::pod_server).
pub fn serve_pod(request: &PodRequest<'_>) -> Option<PodResponse> {
    let containers = request.pod.value().pointer("/spec/containers")?.as_array()?;
    let (container, server) = containers
        .iter()
        .filter_map(|container| Some((container, Server::of(container)?)))
        .find(|(container, server)| server.listens(container, request.port))?;
    Some(server.respond(container, request))
}

impl Server {
    /// Server of a container, by its image and arguments.
    fn of(container: &Value) -> Option<Self> {
        let image = str_at(container, &["image"]);
        let name = image.rsplit('/').next().unwrap_or_default();
        let name = name.split([':', '@']).next().unwrap_or_default();
        match name {
            "httpd" => Some(Self::Httpd),
            "nginx" => Some(Self::Nginx),
            "nautilus" => Some(Self::Nautilus),
            "agnhost" => arguments(container).find_map(|argument| match argument {
                "serve-hostname" => Some(Self::ServeHostname),
                "netexec" => Some(Self::Netexec),
                "porter" => Some(Self::Porter),
                _ => None,
            }),
            _ => None,
        }
    }

    /// `true` if the container listens on the port: one that it declares, or its server's default.
    fn listens(self, container: &Value, port: u16) -> bool {
        let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
        let mut declared = ports.filter_map(|entry| entry["containerPort"].as_u64());
        declared.any(|declared| declared == u64::from(port)) || self.default_port(container) == Some(port)
    }

    fn default_port(self, container: &Value) -> Option<u16> {
        let flag =
            |name: &str| arguments(container).find_map(|argument| argument.strip_prefix(name)?.parse().ok());
        match self {
            Self::ServeHostname => Some(flag("--port=").unwrap_or(9376)),
            Self::Netexec => Some(flag("--http-port=").unwrap_or(8080)),
            Self::Porter => None,
            Self::Httpd | Self::Nginx | Self::Nautilus => Some(80),
        }
    }

    fn respond(self, container: &Value, request: &PodRequest<'_>) -> PodResponse {
        let pod = request.pod.name();
        match self {
            Self::ServeHostname => text(200, pod),
            Self::Httpd => text(200, &format!("Simulated response of pod {pod}\n")),
            Self::Nginx if request.path == "/" => {
                text(200, &format!("<h1>Welcome to nginx!</h1>\nSimulated response of pod {pod}\n"))
            }
            Self::Nginx => text(404, "404 Not Found\n"),
            Self::Nautilus if request.path == "/data.json" => text(200, r#"{"image": "nautilus.jpg"}"#),
            Self::Nautilus => text(404, "404 page not found\n"),
            Self::Porter => {
                let name = format!("SERVE_PORT_{}", request.port);
                let variables = container.get("env").and_then(Value::as_array).into_iter().flatten();
                let variable = variables.into_iter().find(|variable| variable["name"] == name.as_str());
                text(200, variable.map_or("", |variable| str_at(variable, &["value"])))
            }
            Self::Netexec => match request.path.to_ascii_lowercase().as_str() {
                "/" => text(200, "simulated\n"),
                "/hostname" => text(200, pod),
                "/echo" => text(200, &parameter(request, "msg")),
                "/healthz" => text(200, "ok"),
                _ => text(404, "404 page not found\n"),
            },
        }
    }
}

/// Command and arguments of a container.
fn arguments(container: &Value) -> impl Iterator<Item = &str> {
    let lists = ["command", "args"].into_iter().filter_map(|list| container.get(list)?.as_array());
    lists.flatten().filter_map(Value::as_str)
}

/// Value of a query parameter without escapes other than `+`.
fn parameter(request: &PodRequest<'_>, name: &str) -> String {
    let pairs = request.query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next();
    value.unwrap_or_default().replace('+', " ")
}

fn text(code: u16, body: &str) -> PodResponse {
    PodResponse { code, body: body.to_owned() }
}

#[cfg(test)]
mod tests {
    use kcm_apiserver::{ApiServer, ApiServerConfig, Resource, WriteOptions};
    use serde_json::json;

    use super::*;

    #[test]
    fn images_of_test_suites_have_servers() {
        struct Case {
            image: &'static str,
            args: &'static [&'static str],
            port: u16,
            uri: &'static str,
            answer: Option<&'static str>,
        }
        let case = |image, args, port, uri, answer| Case { image, args, port, uri, answer };
        let cases = [
            case("registry.example/e2e/agnhost:2.1", &["serve-hostname"], 9376, "/", Some("p")),
            case("agnhost", &["serve-hostname", "--port=80"], 80, "/", Some("p")),
            case("agnhost", &["serve-hostname"], 7777, "/", Some("p")),
            case("agnhost", &["serve-hostname"], 80, "/", None),
            case("agnhost", &["pause"], 7777, "/", None),
            case("agnhost", &["netexec", "--http-port=81"], 81, "/hostName", Some("p")),
            case("agnhost", &["netexec"], 8080, "/echo?msg=a+b", Some("a b")),
            case("agnhost", &["porter"], 7777, "/", Some("answer")),
            case("localhost:5000/nginx@sha256:1", &[], 80, "/foo", Some("404 Not Found\n")),
            case("httpd:2.4", &[], 80, "/", Some("Simulated response of pod p\n")),
            case("nautilus:1.7", &[], 80, "/data.json", Some(r#"{"image": "nautilus.jpg"}"#)),
            case("busybox", &[], 80, "/", None),
        ];
        for Case { image, args, port, uri, answer } in cases {
            let server = ApiServer::new(ApiServerConfig::default());
            let (ports, env) =
                (json!([{"containerPort": 7777}]), json!([{"name": "SERVE_PORT_7777", "value": "answer"}]));
            let container = json!({"name": "c", "image": image, "args": args, "ports": ports, "env": env});
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}});
            let pod = server.create(Resource::PODS, "default", pod, &WriteOptions::default()).unwrap();
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            let request = PodRequest { pod: &pod, port, method: "GET", path, query, body: b"" };
            let text = serve_pod(&request).map(|response| response.body);
            assert_eq!(text.as_deref(), answer, "{image} {args:?} {port} {uri}");
        }
    }
}
