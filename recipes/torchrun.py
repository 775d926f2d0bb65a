"""torchrun with the exit code of the process that failed first, and without another traceback."""

import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

try:
    main()
except SignalException as stop:
    sys.exit(128 + stop.sigval)
except ChildFailedError as error:
    _, failure = error.get_first_failure()
    code = failure.exitcode
    if code < 0:  # minus the signal
        code = 128 - code
    sys.exit(code)
