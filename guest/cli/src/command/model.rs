//! `sentinel model`: names for model servers. A key is never taken: keys are
//! Muzzle's, and this build's Muzzle holds none.

use api::control::{Request, Response};
use domain::profile::ModelRecord;
use domain::record::Provider;
use serde_json::json;

use crate::Context;
use crate::catalog_args::{ModelAddArgs, ModelCommand, ModelName};
use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::render::block;
use crate::render::style::{Style, Tone};
use crate::render::table::{self, Cell};
use crate::render::time;

/// A line that works where Ollama runs.
const EXAMPLE: &str =
    "sentinel model add local --provider ollama --base-url http://127.0.0.1:11434 --model qwen3:8b";
/// The model that a later build carries.
const EMBEDDED: &str = "embedded";

pub(crate) fn run(context: &mut Context, command: &ModelCommand) -> Result<Exit, Failure> {
    match command {
        ModelCommand::Add(args) => add(context, args),
        ModelCommand::List => list(context),
        ModelCommand::Test(args) => test(context, args),
        ModelCommand::Rm(args) => remove(context, args),
    }
}

fn add(context: &mut Context, args: &ModelAddArgs) -> Result<Exit, Failure> {
    let model = record(args)?;
    let name = model.name.clone();
    expect_done(&mut Session::open(&context.place)?, &Request::ModelAdd { model })?;
    let sentinel = context.place.invocation.0.clone();
    context.out.either(&json!({"added": name}), |style| {
        let hint = format!("try it: {sentinel} model test {name}");
        vec![format!("added model {name}"), style.dim(&hint)]
    })?;
    Ok(Exit::Ok)
}

/// The record that the arguments describe.
fn record(args: &ModelAddArgs) -> Result<ModelRecord, Failure> {
    if args.name == EMBEDDED {
        return Err(Failure::new(
            Exit::Refused,
            "the embedded model is not in this build",
            format!("name a model server on this machine, such as Ollama:\n{EXAMPLE}"),
        ));
    }
    if args.api_key.is_some() {
        return Err(Failure::new(
            Exit::Refused,
            "a provider key needs Muzzle to hold it, and this build's Muzzle only forwards",
            format!(
                "use a model server that needs no key:\n{EXAMPLE}\n\
                 and change the key that was just typed: it may stand in your shell's history"
            ),
        ));
    }
    let missing = |name: &str| {
        Failure::usage(format!("{name} is missing"), format!("a whole line reads:\n{EXAMPLE}"))
    };
    let provider = args.provider.ok_or_else(|| missing("--provider"))?;
    let base_url = args.base_url.as_deref().ok_or_else(|| missing("--base-url"))?;
    if !["http://", "https://"].iter().any(|scheme| base_url.starts_with(scheme)) {
        return Err(Failure::usage(
            format!("{base_url:?} does not begin with http:// or https://"),
            "give scheme, host and port, such as http://127.0.0.1:11434",
        ));
    }
    let model = args.model.clone().ok_or_else(|| missing("--model"))?;
    Ok(ModelRecord {
        name: args.name.clone(),
        provider,
        base_url: base_url.to_owned(),
        model,
        owner: String::new(),
    })
}

fn list(context: &mut Context) -> Result<Exit, Failure> {
    let Response::Models(models) = Session::open(&context.place)?.ask(&Request::Models)? else {
        return Err(Failure::other_version());
    };
    context.out.either(&json!({"models": models}), |style| lines(style, &models))?;
    Ok(Exit::Ok)
}

fn lines(style: Style, models: &[ModelRecord]) -> Vec<String> {
    if models.is_empty() {
        return vec!["no models yet; add one:".to_owned(), EXAMPLE.to_owned()];
    }
    let rows: Vec<Vec<Cell>> = models
        .iter()
        .map(|model| {
            vec![
                Cell::toned(&model.name, Tone::Strong),
                Cell::new(Provider::as_str(model.provider)),
                Cell::new(&model.model),
                Cell::new(&model.owner),
                Cell::new(&model.base_url),
            ]
        })
        .collect();
    table::lines(style, &["NAME", "PROVIDER", "MODEL", "OWNER", "SERVER"], &rows)
}

fn test(context: &mut Context, args: &ModelName) -> Result<Exit, Failure> {
    let name = args.name.clone();
    let line = context.out.style.dim(&format!("… asking {}", block::row(&name, 40)));
    context.out.passing(&line)?;
    let answer = Session::open(&context.place)?.ask(&Request::ModelTest { name })?;
    let Response::ModelTested { reply, ms } = answer else {
        return Err(Failure::other_version());
    };
    context.out.either(&json!({"reply": reply, "ms": ms}), |style| {
        let mark = style.paint(Tone::Good, "✔");
        let reply = block::row(reply.trim(), style.width.saturating_sub(30));
        vec![format!("{mark} answered after {}: {reply}", time::span(ms))]
    })?;
    Ok(Exit::Ok)
}

fn remove(context: &mut Context, args: &ModelName) -> Result<Exit, Failure> {
    let name = args.name.clone();
    expect_done(&mut Session::open(&context.place)?, &Request::ModelRemove { name })?;
    let name = &args.name;
    context.out.either(&json!({"removed": name}), |_| vec![format!("removed model {name}")])?;
    Ok(Exit::Ok)
}

/// Asks for something that has no answer but that it is done.
pub(crate) fn expect_done(session: &mut Session, request: &Request) -> Result<(), Failure> {
    let Response::Done = session.ask(request)? else {
        return Err(Failure::other_version());
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<ModelRecord, Failure> {
        let mut all = vec!["model", "add"];
        all.extend(words);
        let crate::args::Command::Model(ModelCommand::Add(args)) =
            crate::args::tests::command(&all)
        else {
            panic!()
        };
        record(&args)
    }

    #[test]
    fn a_key_is_refused_whatever_else_is_given() {
        for words in [&["x", "--api-key", "sk-1"][..], &["x", "--api-key"]] {
            let failure = parsed(words).unwrap_err();
            assert_eq!(failure.exit, Exit::Refused);
            assert!(failure.what.contains("needs Muzzle"));
            assert!(!failure.to_string().contains("sk-1") && !failure.next.contains("sk-1"));
        }
    }

    #[test]
    fn the_embedded_model_says_that_it_is_not_here() {
        assert!(parsed(&["embedded"]).unwrap_err().what.contains("not in this build"));
    }

    #[test]
    fn what_is_missing_is_named_with_a_whole_line() {
        let base = ["x", "--provider", "ollama"];
        let failure = parsed(&base).unwrap_err();
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Usage, "--base-url is missing"));
        assert!(failure.next.contains(EXAMPLE));
        let mut words = base.to_vec();
        words.extend(["--base-url", "127.0.0.1:1", "--model", "m"]);
        assert!(parsed(&words).unwrap_err().what.contains("http://"));
    }

    #[test]
    fn the_example_that_is_printed_works() {
        let words: Vec<&str> = EXAMPLE.split(' ').skip(3).collect();
        let model = parsed(&words).unwrap();
        assert_eq!((model.provider, model.model.as_str()), (Provider::Ollama, "qwen3:8b"));
    }

    #[test]
    fn models_are_listed_with_their_server() {
        let words: Vec<&str> = EXAMPLE.split(' ').skip(3).collect();
        insta::assert_snapshot!(lines(Style::PLAIN, &[parsed(&words).unwrap()]).join("\n"), @r"
        NAME   PROVIDER  MODEL     OWNER  SERVER
        local  ollama    qwen3:8b         http://127.0.0.1:11434
        ");
    }
}
