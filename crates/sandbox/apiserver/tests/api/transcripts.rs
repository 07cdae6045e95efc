//! Requests with the responses of kube-apiserver v1.36. The e2e test `transcripts` replays and records them on that server.

use kcm_testkit::Transcript;

use crate::{client::Client, webhooks::FakeWebhooks};

/// Replays a transcript on a new server.
async fn replay(name: &str, transcript: Transcript<'_>) {
    // With roles, an administrator may do everything as well.
    let client = Client::with(|config| {
        config.rbac = name == "rbac";
        // That of the recorded server.
        "https://kubernetes.default.svc".clone_into(&mut config.service_account_issuer);
        config.webhooks = Some(FakeWebhooks::refusing());
    });
    let replayed = transcript
        .replay(async |request| {
            let mut headers = request.impersonation();
            headers.push(("content-type", request.media_type));
            let answer = client.call(request.method, request.path, &headers, request.body.to_owned()).await;
            (answer.code, answer.text)
        })
        .await;
    transcript.assert_equal(&replayed);
}

macro_rules! transcripts {
    ($($name:ident)+) => {$(
        #[tokio::test]
        async fn $name() {
            let text = include_str!(concat!("testdata/transcripts/", stringify!($name), ".txt"));
            replay(stringify!($name), Transcript::new(text)).await;
        }
    )+};
}

#[tokio::test]
async fn managed_fields() {
    let text = include_str!("testdata/transcripts/managed_fields.txt");
    replay("managed_fields", Transcript::of_managed_fields(text)).await;
}

#[cfg(feature = "cel")]
transcripts! { policies rules }

transcripts! {
    logs objects patches paths pod_subresources pods rbac regexes reviews selectable_fields stored tokens versions webhooks
}
