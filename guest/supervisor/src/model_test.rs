//! `sentinel model test`: one small question to a model through its Muzzle
//! listener, with a bearer of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use api::control::{RefusalCode, Response};
use domain::profile::ModelRecord;
use domain::record::ModelSnapshot;
use muzzle::TokenDigest;
use muzzle::admin::Client;
use store::State;
use worker::probe::ask_once;

use crate::launch::refuse;
use crate::limits;
use crate::muzzle_link::{listener_name, mint_token};

/// Where Muzzle is administered.
#[derive(Debug, Clone)]
pub(crate) struct ModelTest {
    pub(crate) socket: PathBuf,
}

impl ModelTest {
    /// Asks the model named `name` for one word.
    pub(crate) async fn run(&self, state: &Arc<State>, name: &str) -> Response {
        let models = state.models().map(|m| m.models).unwrap_or_default();
        let Some(model) = models.into_iter().find(|m| m.name == name) else {
            return Response::Refused(refuse(
                RefusalCode::NotFound,
                format!("there is no model named {name:?}"),
                "see `sentinel model list`",
            ));
        };
        match self.ask(model).await {
            Ok(response) => response,
            Err(why) => Response::Refused(refuse(
                RefusalCode::Unavailable,
                why,
                "check that the model server runs and that base URL and model name are right",
            )),
        }
    }

    async fn ask(&self, model: ModelRecord) -> Result<Response, String> {
        let client = Client::new(&self.socket);
        let status = client.status().await.map_err(|e| e.to_string())?;
        let listener = listener_name(&model);
        let port = status.listeners.iter().find(|l| l.name == listener).map(|l| l.port);
        let port = port.ok_or("Muzzle has no listener for this model")?;
        let token = mint_token().map_err(|e| e.to_string())?;
        let digest = || TokenDigest::of(token.as_bytes());
        client.admit(digest(), "model-test").await.map_err(|e| e.to_string())?;
        let snapshot =
            ModelSnapshot { name: model.name, provider: model.provider, model: model.model, port };
        let began = Instant::now();
        let bearer = token.clone();
        let asked = tokio::task::spawn_blocking(move || {
            ask_once(&snapshot, bearer, "Reply with the single word: ready")
        });
        let reply = tokio::time::timeout(limits::MODEL_TEST, asked).await;
        // A bearer that cannot be revoked ends with Muzzle's process.
        let _revoked = client.revoke(digest()).await;
        let reply = reply
            .map_err(|_elapsed| {
                format!("no answer within {} seconds", limits::MODEL_TEST.as_secs())
            })?
            .map_err(|error| error.to_string())??;
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(Response::ModelTested { reply, ms })
    }
}
