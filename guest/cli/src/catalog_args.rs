//! The command lines of what is set up once and named later: models and agents.

use clap::{Args, Subcommand};
use domain::id::AgentName;
use domain::record::Provider;

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Name a model server that needs no key
    #[command(
        after_help = "Example: sentinel model add local --provider ollama --base-url http://127.0.0.1:11434 --model qwen3:8b"
    )]
    Add(ModelAddArgs),
    /// List models
    #[command(after_help = "Example: sentinel model list")]
    List,
    /// Ask a model for one word, the way runs do
    #[command(after_help = "Example: sentinel model test local")]
    Test(ModelName),
    /// Forget a model; runs that use it keep their record
    #[command(after_help = "Example: sentinel model rm local")]
    Rm(ModelName),
}

#[derive(Debug, Args)]
pub(crate) struct ModelAddArgs {
    /// Name that runs and agents use
    pub(crate) name: String,
    /// How the server is spoken to: openai, openai-responses, anthropic, ollama or ollama-generate
    #[arg(long, value_name = "P", value_parser = parse_provider)]
    pub(crate) provider: Option<Provider>,
    /// Scheme, host and port of the server, and its path prefix if it has one
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// The server's own name for the model
    #[arg(long, value_name = "M")]
    pub(crate) model: Option<String>,
    /// Refused: keys wait for Muzzle
    #[arg(long, value_name = "KEY", num_args = 0..=1, default_missing_value = "")]
    pub(crate) api_key: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ModelName {
    /// The model's name
    pub(crate) name: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Make an agent
    #[command(after_help = "Example: sentinel agent create coder --model local --soul coder.md")]
    Create(AgentCreateArgs),
    /// List agents
    #[command(after_help = "Example: sentinel agent list")]
    List,
    /// Show an agent's profile and persona
    #[command(after_help = "Example: sentinel agent show coder")]
    Show(AgentOnly),
    /// Change an agent's profile and persona in your editor
    ///
    /// Runs under way keep the profile they were created with.
    #[command(after_help = "Example: EDITOR=nano sentinel agent edit coder")]
    Edit(AgentOnly),
    /// Remove an agent's profile and persona; its runs and files stay
    #[command(after_help = "Example: sentinel agent rm coder")]
    Rm(AgentOnly),
}

#[derive(Debug, Args)]
pub(crate) struct AgentCreateArgs {
    /// Name: lower case letters, digits, `_` and `-`
    pub(crate) name: AgentName,
    /// Name as people write it [default: the name]
    #[arg(long, value_name = "TEXT")]
    pub(crate) display_name: Option<String>,
    /// Model to use [default: the first one configured]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Tool it may use; repeat for more [default: all but the network]
    #[arg(long = "tool", value_name = "TOOL")]
    pub(crate) tools: Vec<String>,
    /// File with its persona; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) soul: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AgentOnly {
    /// The agent's name
    pub(crate) name: AgentName,
}

fn parse_provider(text: &str) -> Result<Provider, String> {
    Provider::ALL.into_iter().find(|provider| provider.as_str() == text).ok_or_else(|| {
        let known: Vec<&str> = Provider::ALL.iter().map(|provider| provider.as_str()).collect();
        format!("known providers: {}", known.join(", "))
    })
}
