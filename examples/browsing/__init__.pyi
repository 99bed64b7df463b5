from .actions import (
    Action as Action,
)
from .batches import (
    action_batches as action_batches,
)
from .browser import (
    Browser as Browser,
)
from .client import (
    CorpusClient as CorpusClient,
)
from .corpus import (
    Corpus as Corpus,
)
from .episodes import (
    Episode as Episode,
)
from .episodes import (
    LanguagePolicy as LanguagePolicy,
)
from .episodes import (
    Step as Step,
)
from .episodes import (
    demonstrate as demonstrate,
)
from .episodes import (
    run_episodes as run_episodes,
)
from .errors import (
    BrowsingError as BrowsingError,
)
from .errors import (
    CorpusError as CorpusError,
)
from .errors import (
    EpisodeEndedError as EpisodeEndedError,
)
from .errors import (
    ForbiddenAddressError as ForbiddenAddressError,
)
from .errors import (
    InvalidActionError as InvalidActionError,
)
from .errors import (
    NoSuchLinkError as NoSuchLinkError,
)
from .errors import (
    PageError as PageError,
)
from .errors import (
    TextNotFoundError as TextNotFoundError,
)
from .full_text import (
    FullTextIndex as FullTextIndex,
)
from .pages import (
    Page as Page,
)
from .pages import (
    read_html as read_html,
)
from .passages import (
    Passage as Passage,
)
from .passages import (
    PassageIndex as PassageIndex,
)
from .passages import (
    cut_passages as cut_passages,
)
from .server import (
    CorpusServer as CorpusServer,
)
from .sphinx_facts import (
    Fact as Fact,
)
from .sphinx_facts import (
    sphinx_facts as sphinx_facts,
)
from .state import (
    BrowserLimits as BrowserLimits,
)
from .state import (
    BrowserState as BrowserState,
)
from .state import (
    Quote as Quote,
)
from .state import (
    render_answer as render_answer,
)
from .state import (
    render_state as render_state,
)
