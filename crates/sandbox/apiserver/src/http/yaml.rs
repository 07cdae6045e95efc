//! Responses in YAML.

use bytes::Bytes;
use http::{HeaderValue, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{media, response::ApiResponse};

/// Number of items that are converted before other requests are served.
const BATCH: usize = 64;

/// List with encoded items, so that only one of them is decoded at a time.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    kind: String,
    api_version: String,
    #[serde(default)]
    metadata: Value,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

/// Converts a response from JSON. A response that is no JSON remains as it is.
pub(super) async fn convert(response: ApiResponse) -> ApiResponse {
    let (mut parts, body) = response.into_parts();
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes);
    let text = match serde_json::from_slice::<List<'_>>(&body) {
        Ok(list) => list_text(&list).await,
        Err(_) => serde_json::from_slice::<Value>(&body).ok().and_then(|value| text(&value)),
    };
    let body = match text {
        Some(text) => {
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(media::YAML));
            Bytes::from(text)
        }
        None => body,
    };
    ApiResponse::from_parts(parts, Full::new(body).boxed_unsync())
}

fn text(value: &Value) -> Option<String> {
    serde_saphyr::to_string(value).ok()
}

/// Returns the text of a list. Only one item exists in decoded form.
async fn list_text(list: &List<'_>) -> Option<String> {
    let List { kind, api_version, metadata, items } = list;
    let mut lines = text(&json!({"apiVersion": api_version, "kind": kind, "metadata": metadata}))?;
    lines += if items.is_empty() { "items: []\n" } else { "items:\n" };
    for (index, item) in items.iter().enumerate() {
        let item: Value = serde_json::from_str(item.get()).ok()?;
        lines += &text(&json!([item]))?;
        if index % BATCH == BATCH - 1 {
            tokio::task::yield_now().await;
        }
    }
    Some(lines)
}
