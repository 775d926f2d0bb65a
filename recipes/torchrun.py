"""torchrun, which ends with the exit code of the process that failed first, and without a traceback
of its own.
"""

import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

try:
    main()
except SignalException as stop:
    sys.exit(128 + stop.sigval)
except ChildFailedError as error:
    code = error.get_first_failure()[1].exitcode
    sys.exit(code if code >= 0 else 128 - code)
