//! `sentinel agent`: plain profiles, each a YAML file and a persona.

use api::control::{AgentSummary, Request, Response};
use domain::id::AgentName;
use domain::profile::parse_profile;
use serde_json::json;
use serde_yaml::Mapping;

use super::model::expect_done;
use super::{agent_edit, input};
use crate::catalog_args::{AgentCommand, AgentCreateArgs, AgentOnly};
use crate::connect::Session;
use crate::exit::{Exit, Failure};
use crate::render::block;
use crate::render::style::{Style, Tone};
use crate::render::table::{self, Cell};
use crate::{Context, limits};

pub(crate) fn run(context: &mut Context, command: &AgentCommand) -> Result<Exit, Failure> {
    match command {
        AgentCommand::Create(args) => create(context, args),
        AgentCommand::List => list(context),
        AgentCommand::Show(args) => show(context, args),
        AgentCommand::Edit(args) => agent_edit::run(context, &args.name),
        AgentCommand::Rm(args) => remove(context, args),
    }
}

fn create(context: &mut Context, args: &AgentCreateArgs) -> Result<Exit, Failure> {
    let profile = profile_text(args)?;
    let soul = match &args.soul {
        Some(path) => input::file(path, limits::PROFILE_BYTES)?,
        None => String::new(),
    };
    let name = args.name.clone();
    save(&mut Session::open(&context.place)?, &name, profile, soul, true)?;
    let sentinel = context.place.invocation.0.clone();
    context.out.either(&json!({"created": name}), |style| {
        vec![
            format!("created agent {name}"),
            style.dim(&format!("give it a task: {sentinel} run --agent {name} \"…\"")),
        ]
    })?;
    Ok(Exit::Ok)
}

/// The profile that the arguments describe, as YAML.
fn profile_text(args: &AgentCreateArgs) -> Result<String, Failure> {
    // Only what was said: an absent key keeps its default in later versions too.
    let mut profile = Mapping::new();
    let mut put = |key: &str, value: serde_yaml::Value| profile.insert(key.into(), value);
    put("display_name", args.display_name.clone().unwrap_or_else(|| args.name.to_string()).into());
    if let Some(model) = &args.model {
        put("model", model.as_str().into());
    }
    if !args.tools.is_empty() {
        put("tools", args.tools.clone().into());
    }
    let text = serde_yaml::to_string(&profile).map_err(|error| {
        Failure::new(Exit::Failed, format!("the profile has no YAML form: {error}"), "report it")
    })?;
    check(&text).map_err(|problems| {
        Failure::usage(problems.join("\n"), "see `sentinel agent create --help`")
    })?;
    Ok(text)
}

/// What is wrong with a profile, a line for each problem.
pub(crate) fn check(profile: &str) -> Result<(), Vec<String>> {
    match parse_profile(profile) {
        Ok(_) => Ok(()),
        Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
    }
}

pub(crate) fn save(
    session: &mut Session,
    name: &AgentName,
    profile: String,
    soul: String,
    create: bool,
) -> Result<(), Failure> {
    expect_done(session, &Request::AgentSave { name: name.clone(), profile, soul, create })
}

/// An agent's profile and persona.
pub(crate) fn load(session: &mut Session, name: &AgentName) -> Result<(String, String), Failure> {
    let Response::Agent { profile, soul, .. } =
        session.ask(&Request::Agent { name: name.clone() })?
    else {
        return Err(Failure::other_version());
    };
    Ok((profile, soul))
}

fn list(context: &mut Context) -> Result<Exit, Failure> {
    let Response::Agents(agents) = Session::open(&context.place)?.ask(&Request::Agents)? else {
        return Err(Failure::other_version());
    };
    context.out.either(&json!({"agents": agents}), |style| lines(style, &agents))?;
    Ok(Exit::Ok)
}

fn lines(style: Style, agents: &[AgentSummary]) -> Vec<String> {
    let rows: Vec<Vec<Cell>> = agents
        .iter()
        .map(|agent| {
            let model = if agent.model.is_empty() { "(first one)" } else { &agent.model };
            vec![
                Cell::toned(agent.name.as_str(), Tone::Strong),
                Cell::new(if agent.head { "head" } else { "" }),
                Cell::new(model),
                Cell::new(&agent.display_name),
            ]
        })
        .collect();
    table::lines(style, &["NAME", "", "MODEL", "DISPLAYED AS"], &rows)
}

fn show(context: &mut Context, args: &AgentOnly) -> Result<Exit, Failure> {
    let (profile, soul) = load(&mut Session::open(&context.place)?, &args.name)?;
    let document = json!({"name": args.name, "profile": profile, "soul": soul});
    context.out.either(&document, |style| {
        let text = |text: &str| block::wrap(text.trim_end(), style.width, text.len());
        let mut lines = vec![style.strong(&format!("{}.yaml", args.name))];
        lines.extend(text(&profile));
        lines.push(String::new());
        lines.push(style.strong(&format!("{}.soul.md", args.name)));
        lines.extend(if soul.trim().is_empty() {
            vec![style.dim("no persona of its own")]
        } else {
            text(&soul)
        });
        lines
    })?;
    Ok(Exit::Ok)
}

fn remove(context: &mut Context, args: &AgentOnly) -> Result<Exit, Failure> {
    let name = &args.name;
    let request = Request::AgentRemove { name: name.clone() };
    expect_done(&mut Session::open(&context.place)?, &request)?;
    context.out.either(&json!({"removed": name}), |_| {
        vec![format!("removed agent {name}; its runs and its workspace stay")]
    })?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(words: &[&str]) -> Result<String, Failure> {
        let mut all = vec!["agent", "create"];
        all.extend(words);
        let crate::args::Command::Agent(AgentCommand::Create(args)) =
            crate::args::tests::command(&all)
        else {
            panic!()
        };
        profile_text(&args)
    }

    #[test]
    fn a_profile_from_options_reads_back_as_they_were() {
        let text =
            profile(&["coder", "--model", "local", "--tool", "read_file", "--tool", "search"])
                .unwrap();
        let parsed = parse_profile(&text).unwrap();
        assert_eq!((parsed.display_name.as_str(), parsed.model.as_str()), ("coder", "local"));
        assert_eq!(parsed.granted_tools(), ["read_file", "search"]);
        let plain = profile(&["coder", "--display-name", "Mx: Coder"]).unwrap();
        assert_eq!(plain, "display_name: 'Mx: Coder'\n");
        assert_eq!(parse_profile(&plain).unwrap().display_name, "Mx: Coder");
    }

    #[test]
    fn a_tool_that_does_not_exist_is_refused_with_those_that_do() {
        let failure = profile(&["coder", "--tool", "fly"]).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.what.contains("\"fly\"") && failure.what.contains("run_command"));
    }

    #[test]
    fn a_listing_names_the_head() {
        let agent = |name: &str, head| AgentSummary {
            name: AgentName::new(name).unwrap(),
            display_name: name.to_uppercase(),
            model: if head { String::new() } else { "local".into() },
            head,
        };
        insta::assert_snapshot!(
            lines(Style::PLAIN, &[agent("naomi", true), agent("coder", false)]).join("\n"),
            @r"
        NAME         MODEL        DISPLAYED AS
        naomi  head  (first one)  NAOMI
        coder        local        CODER
        "
        );
    }
}
