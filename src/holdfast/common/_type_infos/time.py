"""Type information of dates and times of day."""

from __future__ import annotations

import calendar
import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final

from holdfast.common._type_infos.base import Scope, TypeInformation, wrong_type

_MILLION: Final = 10**6
_DAY_MICROS: Final = 86_400 * _MILLION
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


class SqlTimeTypeInfo(TypeInformation):
    """The types of dates and times of day."""

    @staticmethod
    def DATE() -> DateTypeInfo:
        """Return the type of `datetime.date`."""
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TimeTypeInfo:
        """Return the type of `datetime.time`."""
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TimestampTypeInfo:
        """Return the type of `datetime.datetime`."""
        return TimestampTypeInfo()


class _DateOrTime(TypeInformation):
    """Base of dates, times and timestamps."""

    @property
    def _python_type(self) -> type:
        raise NotImplementedError

    def shape(self, value: Any) -> Any:
        if value is None or type(value) is self._python_type:
            return value
        if not isinstance(value, self._python_type):
            raise wrong_type(self, value)
        return _PLAIN_TIMES[self._python_type](value)

    def msgpack_type(self) -> Any:
        """Return the type that msgspec decodes, which is the Python type."""
        return self._python_type

    def _test(self, value: str, scope: Scope) -> str:
        return f"type({value}) is {scope.bind(self._python_type)}"


@dataclass(frozen=True, repr=False)
class DateTypeInfo(_DateOrTime):
    """Type information of `datetime.date`; a datetime becomes its date."""

    @property
    def _python_type(self) -> type:
        return datetime.date

    EPOCH_ORDINAL: ClassVar[int] = datetime.date(1970, 1, 1).toordinal()

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: datetime.date | None) -> int | None:
        """Return the days since the epoch."""
        return None if obj is None else obj.toordinal() - self.EPOCH_ORDINAL

    def from_internal_type(self, obj: int | None) -> datetime.date | None:
        """Return the date that many days after the epoch."""
        return None if obj is None else datetime.date.fromordinal(obj + self.EPOCH_ORDINAL)

    def __repr__(self) -> str:
        return "DateTypeInfo"


@dataclass(frozen=True, repr=False)
class TimeTypeInfo(_DateOrTime):
    """Type information of `datetime.time`."""

    @property
    def _python_type(self) -> type:
        return datetime.time

    EPOCH_ORDINAL: ClassVar[int] = calendar.timegm(time.localtime(0)) * _MILLION

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: datetime.time | None) -> int | None:
        """Return the microseconds since midnight UTC; a time without zone is local."""
        if obj is None:
            return None
        seconds = (obj.hour * 60 + obj.minute) * 60 + obj.second
        offset = obj.utcoffset() or datetime.timedelta()
        shift = self.EPOCH_ORDINAL if obj.tzinfo is None else offset // _MICROSECOND
        return seconds * _MILLION + obj.microsecond - shift

    def from_internal_type(self, obj: int | None) -> datetime.time | None:
        """Return the local time that many microseconds after midnight UTC."""
        if obj is None:
            return None
        seconds, micros = divmod((obj + self.EPOCH_ORDINAL) % _DAY_MICROS, _MILLION)
        return datetime.time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)

    def __repr__(self) -> str:
        return "TimeTypeInfo"


@dataclass(frozen=True, repr=False)
class TimestampTypeInfo(_DateOrTime):
    """Type information of `datetime.datetime`, with or without a zone."""

    @property
    def _python_type(self) -> type:
        return datetime.datetime

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: datetime.datetime | None) -> int | None:
        """Return the microseconds since the epoch; a datetime without zone is local."""
        if obj is None:
            return None
        return int(obj.replace(microsecond=0).timestamp()) * _MILLION + obj.microsecond

    def from_internal_type(self, obj: int | None) -> datetime.datetime | None:
        """Return the local datetime that many microseconds after the epoch."""
        if obj is None:
            return None
        seconds, micros = divmod(obj, _MILLION)
        local = datetime.datetime.fromtimestamp(seconds, datetime.UTC).astimezone()
        return local.replace(microsecond=micros, tzinfo=None)

    def __repr__(self) -> str:
        return "TimestampTypeInfo"


@dataclass(frozen=True, repr=False)
class LocalTimeTypeInfo(_DateOrTime):
    """Type information of dates and times under the names of Java's `LocalDate` and so on."""

    class TimeType(Enum):
        """The kinds of dates and times."""

        LOCAL_DATE = 0
        LOCAL_TIME = 1
        LOCAL_DATE_TIME = 2

    _time_type: TimeType

    @property
    def _python_type(self) -> type:
        return (datetime.date, datetime.time, datetime.datetime)[self._time_type.value]

    def __repr__(self) -> str:
        return f"LocalTimeTypeInfo<{self._time_type.name}>"


def _plain_datetime(value: datetime.datetime) -> datetime.datetime:
    return datetime.datetime.combine(value.date(), _plain_time(value.timetz()))


def _plain_time(value: datetime.time) -> datetime.time:
    return datetime.time(
        value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold
    )


#: from a subclass to the class itself
_PLAIN_TIMES: Final[dict[type, Callable[[Any], Any]]] = {
    datetime.date: lambda v: datetime.date(v.year, v.month, v.day),
    datetime.time: _plain_time,
    datetime.datetime: _plain_datetime,
}
